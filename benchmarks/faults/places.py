"""The stores of a campaign, with their servers, and the proxies in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args
from urllib.parse import urlsplit

from benchmarks.faults.proxy import Proxy, proxy
from harness_temporal.stores import StepStore
from harness_temporal.stores.externalizer import MediaStoreChoice
from harness_temporal.stores.file import FileStepStore
from harness_temporal.stores.opening import FileLocation, ServerLocation, parse_location
from harness_temporal.stores.sqlite import SqliteStepStore

if TYPE_CHECKING:
    from harness_temporal.media.s3 import S3MediaStore

StoreKind = Literal['sqlite', 'file', 'postgres', 'mongo']
STORES: tuple[StoreKind, ...] = get_args(StoreKind)
_HOST = '127.0.0.1'
_BUCKET, _SCHEMA = 'faults', 'faults'


class Server(Protocol):
    """What the embedded servers of the tests have."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class StoreAddress:
    """How a process gets at the store."""

    location: str
    """As `open_store` takes it."""
    objects: str | None = None
    """The endpoint of the object store that large values are in, if they are in one."""

    def open(self) -> StepStore:
        """Open it for as long as this process lives."""
        return self._open(self._media())

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[StepStore]:
        media = self._media()
        store = self._open(media)
        try:
            yield store
        finally:
            await store.aclose()
            if media is not None:
                await media.aclose()

    def _media(self) -> S3MediaStore | None:
        if self.objects is None:
            return None
        from harness_temporal.media.s3 import S3MediaStore

        return S3MediaStore(
            _BUCKET, endpoint=self.objects, region='us-east-1', access_key_id='test', secret_access_key='test'
        )

    def _open(self, media: S3MediaStore | None) -> StepStore:
        choice: MediaStoreChoice = media if media is not None else 'default'
        match parse_location(self.location):
            case FileLocation('sqlite', path):
                return SqliteStepStore(path, media_store=choice)
            case FileLocation(_, path):
                return FileStepStore(path, media_store=choice)
            case ServerLocation('postgresql', url):
                from harness_temporal.stores.postgres import PostgresStepStore

                return PostgresStepStore(url, schema=_SCHEMA, media_store=choice)
            case ServerLocation(_, url):
                from harness_temporal.stores.mongo import MongoStepStore

                return MongoStepStore(db_url=url, database=_SCHEMA, media_store=choice)


@dataclass(frozen=True)
class Place:
    """Where a campaign's store is."""

    for_workers: StoreAddress
    """As workers reach it: through the proxies, if it is on servers."""
    direct: StoreAddress
    server: Server | None = None
    proxy: Proxy | None = None
    objects: Proxy | None = None
    """The workers' way to the object store, if there is one."""


@asynccontextmanager
async def open_place(kind: StoreKind, folder: Path, *, objects: bool) -> AsyncGenerator[Place]:
    """Make an empty store, and run its server; with `objects`, large values are in an object store beside it."""
    async with _open_store(kind, folder) as place:
        if not objects:
            yield place
            return
        from tests.s3_server import own_s3_server

        with own_s3_server() as server:
            await asyncio.to_thread(server.client.create_bucket, Bucket=_BUCKET)
            async with proxy(_HOST, urlsplit(server.endpoint).port or 0) as before:
                yield replace(
                    place,
                    for_workers=replace(place.for_workers, objects=f'http://{before.address}'),
                    direct=replace(place.direct, objects=server.endpoint),
                    objects=before,
                )


@asynccontextmanager
async def _open_store(kind: StoreKind, folder: Path) -> AsyncGenerator[Place]:
    if kind in ('sqlite', 'file'):
        address = StoreAddress(f'{kind}:{folder / "runs.db" if kind == "sqlite" else folder / "runs"}')
        yield Place(address, address)
        return
    async with AsyncExitStack() as stack:
        if kind == 'postgres':
            from tests.postgres_server import EmbeddedPostgres

            server = EmbeddedPostgres()
            # The tests' server acknowledges before it writes: a server that is killed would lose what it promised.
            location = 'postgresql://postgres@{}/postgres?synchronous_commit=on'
        else:
            from tests.mongo_server import EmbeddedMongo

            # Without it the stand-in loses what it acknowledged when it is killed. A replica set of MongoDB does not.
            server = EmbeddedMongo('--sync-on-commit')
            location = f'mongodb://{{}}/{_SCHEMA}?directConnection=true'
        stack.callback(server.remove)
        await asyncio.to_thread(server.start)
        before = await stack.enter_async_context(proxy(_HOST, server.port))
        for_workers, direct = (location.format(address) for address in (before.address, f'{_HOST}:{server.port}'))
        yield Place(StoreAddress(for_workers), StoreAddress(direct), server, before)
