"""The stores of a campaign, with their servers, which can be stopped, and the proxies in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from benchmarks.faults.proxy import Proxy, proxy

StoreKind = Literal['sqlite', 'file', 'postgres', 'mongo']
STORES: tuple[StoreKind, ...] = get_args(StoreKind)
_HOST = '127.0.0.1'


class Server(Protocol):
    """What the embedded servers of the tests have."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """Where a campaign's store is."""

    for_workers: str
    """As workers reach it: through the proxy, if it is on a server."""
    direct: str
    server: Server | None = None
    proxy: Proxy | None = None


@asynccontextmanager
async def open_place(kind: StoreKind, folder: Path) -> AsyncGenerator[Place]:
    """Make an empty store, and run its server."""
    if kind in ('sqlite', 'file'):
        location = f'{kind}:{folder / "runs.db" if kind == "sqlite" else folder / "runs"}'
        yield Place(location, location)
        return
    async with AsyncExitStack() as stack:
        if kind == 'postgres':
            from tests.postgres_server import EmbeddedPostgres

            server = EmbeddedPostgres()
            # The tests' server acknowledges before it writes: a server that is killed would lose what it promised.
            location = 'postgresql://postgres@{}/postgres?schema=faults&synchronous_commit=on'
        else:
            from tests.mongo_server import EmbeddedMongo

            server = EmbeddedMongo()
            location = 'mongodb://{}/faults?directConnection=true'
        stack.callback(server.remove)
        await asyncio.to_thread(server.start)
        before = await stack.enter_async_context(proxy(_HOST, server.port))
        yield Place(location.format(before.address), location.format(f'{_HOST}:{server.port}'), server, before)
