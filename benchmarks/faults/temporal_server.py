"""A Temporal server that can be stopped and comes back with its histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.proxy import Proxy, proxy
from harness_temporal.temporal.dev_server import dev_server, free_port

_HOST = '127.0.0.1'


@dataclass
class TemporalServer:
    folder: Path
    port: int
    proxy: Proxy
    """The workers' way to it."""
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> str:
        """The campaign's own way to it."""
        return f'{_HOST}:{self.port}'

    def start(self) -> None:
        log, database = self.folder / 'temporal.log', self.folder / 'temporal.db'
        self._running.enter_context(dev_server(ui=False, log=log, database=database, port=self.port))

    def stop(self) -> None:
        self._running.close()


@asynccontextmanager
async def temporal_server(folder: Path) -> AsyncGenerator[TemporalServer]:
    port = free_port()
    async with proxy(_HOST, port) as before:
        server = TemporalServer(folder, port, before)
        await asyncio.to_thread(server.start)
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)
