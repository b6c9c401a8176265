"""A MongoDB for the tests: the one that `HARNESS_TEST_MONGO_URL` names, or one of our own.

Our own is SecantusDB, which speaks MongoDB's protocol over MongoDB's storage engine. It runs in a process of its own,
keeps its data in a temporary directory and is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_temporal.temporal.dev_server import free_port

if TYPE_CHECKING:
    from pymongo import MongoClient

URL_VARIABLE = 'HARNESS_TEST_MONGO_URL'
_START_TIMEOUT = 60.0


class EmbeddedMongo:
    """One server with an empty data directory. `stop` and `start` keep data, port and URL."""

    def __init__(self, *options: str) -> None:
        if find_spec('secantus') is None:
            raise RuntimeError(f'Install `SecantusDB`, or set {URL_VARIABLE} to the URL of a server.')
        self._options = options
        self.directory = Path(tempfile.mkdtemp(prefix='harness-mongo-'))
        self.port = free_port()
        self.url = f'mongodb://127.0.0.1:{self.port}/'
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more_options: str) -> None:
        """Start the server and wait until it takes connections."""
        options = ['--host', '127.0.0.1', '--port', str(self.port), '--storage-path', str(self.directory / 'data')]
        # The program beside this Python; the settings of whoever runs the tests are not for it.
        program = Path(sys.executable).parent / 'secantusd-py'
        (self.directory / 'secantusd.toml').touch()
        with (self.directory / 'log').open('ab') as log:
            self._process = subprocess.Popen(
                [program, *options, '--config', str(self.directory / 'secantusd.toml'), *self._options, *more_options],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f'SecantusDB does not start:\n{self.log()}')
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server as an administrator would."""
        if self._process is not None:
            self._process.terminate()
        self._wait()

    def kill(self) -> None:
        """Stop the server at once, as a crash would; the next start recovers."""
        if self._process is not None:
            self._process.kill()
        self._wait()

    def log(self) -> str:
        """Return what the server wrote."""
        return (self.directory / 'log').read_text(errors='replace')

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def embedded_mongo(*options: str) -> Iterator[EmbeddedMongo]:
    """Run a server of our own, for a test that stops it or needs it different."""
    server = EmbeddedMongo(*options)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def mongo_url() -> Iterator[str]:
    """Yield the URL of a server to test against. Use it once per session, and a database of its own per test."""
    with ExitStack() as stack:
        url = os.environ.get(URL_VARIABLE) or stack.enter_context(embedded_mongo()).url
        yield stack.enter_context(_lasting_client(url))


async def drop_database(url: str, database: str) -> None:
    """Drop a database of the server that `mongo_url` yields."""
    _lasting_clients[url].drop_database(database)


_lasting_clients: dict[str, MongoClient[dict[str, Any]]] = {}
"""One per server, because a new client takes ten times as long as what it is made for."""


@contextmanager
def _lasting_client(url: str) -> Iterator[str]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](url) as client:
        _lasting_clients[url] = client
        yield url
        del _lasting_clients[url]


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(('127.0.0.1', port), timeout=1):
        return True
    return False
