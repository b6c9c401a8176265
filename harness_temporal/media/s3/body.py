"""The bytes of an object on their way out."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from harness_temporal.media.blob import CHUNK
from harness_temporal.media.s3.client import S3Client
from harness_temporal.media.s3.errors import call


class Body:
    """Reads an object in pieces. Its request is sent by the first read.

    A thread may still be in a read whose caller was cancelled. It holds the lock meanwhile, so that nobody closes the
    connection under it or waits for it in the event loop.
    """

    def __init__(self, open_object: Callable[[S3Client], Any]) -> None:
        self._open_object = open_object
        self._lock = Lock()
        self._stream: Any = None
        self._is_closed = False

    def read(self, client: S3Client) -> bytes:
        """Return the next bytes; none at the end. Blocks."""
        with self._lock:
            if self._stream is None:
                self._stream = self._open_object(client)
            return call(self._stream.read, CHUNK)

    def close(self) -> None:
        """Give the connection back. Blocks while a thread reads."""
        with self._lock:
            self._close()

    def close_at_once(self) -> bool:
        """Give the connection back unless a thread reads, and return whether that was done."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._close()
        finally:
            self._lock.release()
        return True

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
