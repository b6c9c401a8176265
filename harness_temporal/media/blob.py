"""Bytes on their way into a store: in memory, or in a temporary file when they come as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Final

from anyio import to_thread

CHUNK: Final = 1 << 20
"""Bytes that are read or written at a time."""
_IN_MEMORY = 8 << 20
"""Bytes of a stream that are held in memory before a temporary file takes them."""


@dataclass(frozen=True)
class Blob:
    """Bytes that have a name."""

    digest: str
    """SHA-256 in hexadecimal digits."""
    size: int
    file: IO[bytes]

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Wrap bytes."""
        return cls(hashlib.sha256(data).hexdigest(), len(data), BytesIO(data))

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """Read the blob from its start. Blocks."""
        self.file.seek(0)
        while chunk := self.file.read(size):
            yield chunk

    async def achunks(self, size: int = CHUNK) -> AsyncIterator[bytes]:
        """Read the blob from its start without blocking the event loop."""
        await to_thread.run_sync(self.file.seek, 0)
        while chunk := await to_thread.run_sync(self.file.read, size):
            yield chunk


@dataclass(frozen=True)
class StoredBlob:
    """A blob that a store holds."""

    digest: str
    size: int
    touched_at: datetime
    """When it was last put. Collection spares what was put lately."""


@asynccontextmanager
async def received(stream: AsyncIterable[bytes]) -> AsyncGenerator[Blob]:
    """Take in a whole stream, so that its digest is known before a store gets any of it."""
    digest, size = hashlib.sha256(), 0
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        async for chunk in stream:
            digest.update(chunk)
            size += len(chunk)
            await to_thread.run_sync(file.write, chunk)
        yield Blob(digest.hexdigest(), size, file)
