"""The store: blobs as rows, the large ones in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from harness_temporal.databases.postgres.opening import DEFAULT_SCHEMA, open_connections
from harness_temporal.databases.postgres.sql import Row
from harness_temporal.errors import MediaCorruptionError
from harness_temporal.media.blob import CHUNK, Blob, StoredBlob
from harness_temporal.media.context import NO_CONTEXT, MediaContext, PublicUrlResolver
from harness_temporal.media.metadata import dump_metadata, load_metadata
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import digest_of, uri_of
from harness_temporal.text import escape

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

    from harness_temporal.databases.postgres.connections import Connections
    from harness_temporal.databases.postgres.schema import Connection

STORE: Final = 'PostgresMediaStore'
_PAGE = 500
"""Blobs that are listed at a time."""
_SILENCE = 60_000
"""Milliseconds after which the server drops a writer that stopped in the middle of a blob, for others who have it."""


class PostgresMediaStore(BaseMediaStore):
    """Keeps blobs in two tables of one schema: what is known of a blob, and its bytes in pieces of a megabyte.

    A blob of one piece is put, and read, with one statement. A larger one is put in one transaction, whose pieces come
    one by one from where the blob is, and is read piece by piece; between two pieces a reader holds no connection.

    For what is said of the schema, event loops, pools and poolers, see `PostgresStepStore`.

    Args:
        dsn: Where the database is; the store makes a pool of its own. Or the open connections of another store, with
            their schema and bounds; they stay open.
        pool: A pool instead, which stays open and as it is, with whatever codecs it has.
        schema: The schema to use; it is made unless it is there.
        public_url: Gives the URL from which a model may fetch a blob.
        max_pool_size: How many connections the store's own pool may open.
        acquire_timeout: How many seconds a call may wait for a connection before it raises `StoreUnavailableError`.
    """

    def __init__(
        self,
        dsn: str | Connections | None = None,
        *,
        pool: asyncpg.Pool | None = None,
        schema: str = DEFAULT_SCHEMA,
        public_url: PublicUrlResolver | None = None,
        max_pool_size: int = 10,
        acquire_timeout: float = 30.0,
    ) -> None:
        super().__init__(public_url=public_url)
        self._connections, self._queries = open_connections(
            dsn,
            pool,
            schema=schema,
            max_pool_size=max_pool_size,
            acquire_timeout=acquire_timeout,
            store=STORE,
            package='harness_temporal.media.postgres',
        )
        self._is_shared = self._connections is dsn

    async def aclose(self) -> None:
        """Close the store, and its pool unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._connections.aclose()

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        return bool(await self._fetch('about', bytes.fromhex(digest_of(uri))))

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        digest = digest_of(uri)
        rows = await self._fetch('about', bytes.fromhex(digest))
        if not rows:
            raise self._not_found(digest)
        return load_metadata(rows[0]['metadata'], uri)

    async def blobs(self) -> AsyncGenerator[StoredBlob]:
        last = b''
        while rows := await self._fetch('list_blobs', last, _PAGE):
            for row in rows:
                yield StoredBlob(row['digest'].hex(), row['size'], row['touched_at'])
            last = rows[-1]['digest']

    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        return bool(await self._fetch('delete', bytes.fromhex(digest), untouched_since))

    async def _write(self, blob: Blob, context: MediaContext) -> None:
        digest = bytes.fromhex(blob.digest)
        media_type = None if context.media_type is None else escape(context.media_type)
        about = digest, blob.size, media_type, dump_metadata(context.metadata)
        if blob.size <= CHUNK:
            await self._fetch('put_small', *about, b''.join([chunk async for chunk in blob.achunks()]))
            return

        async def send(connection: Connection) -> None:
            if await connection.fetch(self._queries['begin_large'], *about, str(_SILENCE)):
                index = 0
                async for chunk in blob.achunks():
                    await connection.fetch(self._queries['put_chunk'], digest, index, chunk)
                    index += 1

        # Touched also after it was sent, which may have taken longer than collection spares what was put lately.
        while not await self._fetch('touch', digest):
            await self._connections.transact(send)

    async def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        index = count = 0
        while True:
            rows = await self._fetch('read_chunk', bytes.fromhex(digest), index)
            if not rows:
                raise self._not_found(digest)
            size, data = rows[0]['size'], rows[0]['data']
            if data is None:
                raise MediaCorruptionError(uri_of(digest), f'piece {index} is missing after {count} of {size} bytes.')
            yield data
            index += 1
            count += len(data)
            if count >= size:
                return

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        return await self._connections.fetch(self._queries[query], *arguments)
