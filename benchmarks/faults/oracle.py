"""The outside service whose effects are counted. It is no part of the product and shares nothing with it.

Workers reach it through a socket of the campaign's process. An effect has happened when its line is on disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_EFFECT, _READY = 'effect', 'ready'
RESUMED, CHILD = '~', '/'
"""Between a workflow's id and the number of its resumption, and between that and the name of a child."""


@dataclass
class Oracle:
    """Counts effects by the run that they belong to and the call that made them."""

    socket: Path
    _log: int
    effects: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each call of each run had its effect, in all workflows of that run."""
    in_one_workflow: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """The same, the most that there was in one workflow."""
    _by_workflow: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    ready: set[int] = field(default_factory=set[int])
    """Processes that have started to work."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            # A line without its end was never finished: the client died, and nothing happened.
            if line.endswith(b'\n'):
                self._take(line)
                writer.write(b'ok\n')
                await writer.drain()
        except OSError:
            pass  # The client died after its effect.
        finally:
            writer.close()

    def _take(self, line: bytes) -> None:
        kind, *words = line.decode().split()
        if kind == _READY:
            self.ready.add(int(words[0]))
            return
        workflow_id, call_id = words
        os.write(self._log, line)
        os.fsync(self._log)
        run = workflow_id.partition(CHILD)[0].partition(RESUMED)[0]
        self.effects[run, call_id] += 1
        self._by_workflow[workflow_id, call_id] += 1
        most = max(self.in_one_workflow[run, call_id], self._by_workflow[workflow_id, call_id])
        self.in_one_workflow[run, call_id] = most


@asynccontextmanager
async def oracle(folder: Path) -> AsyncGenerator[Oracle]:
    """Run the service, with its log in the folder."""
    log = os.open(folder / 'effects.log', os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    service = Oracle(folder / 'oracle', log)
    server = await asyncio.start_unix_server(service._serve, service.socket)  # pyright: ignore[reportPrivateUsage]
    try:
        yield service
    finally:
        server.close()
        await server.wait_closed()
        os.close(log)


def have_effect(address: Path, workflow_id: str, call_id: str) -> None:
    """Have an effect, from a worker: when this returns, it has happened."""
    _tell(address, f'{_EFFECT} {workflow_id} {call_id}\n')


def say_ready(address: Path) -> None:
    """Say that this process has started to work."""
    _tell(address, f'{_READY} {os.getpid()}\n')


def _tell(address: Path, line: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(address))
        connection.sendall(line.encode())
        if connection.recv(16) != b'ok\n':
            raise ConnectionError('The outside service did not answer.')
