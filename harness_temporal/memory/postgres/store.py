"""The store: one transaction per change, under the lock of the notebook's row."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from harness_temporal.databases.postgres.opening import DEFAULT_SCHEMA, open_connections
from harness_temporal.databases.postgres.sql import Row
from harness_temporal.memory.notes import (
    OPERATIONS_KEPT,
    Edit,
    Glance,
    Note,
    Notebook,
    edited,
    revision_of,
)
from harness_temporal.memory.protocol import PAGE, MemoryStore

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

    from harness_temporal.databases.postgres.connections import Connections
    from harness_temporal.databases.postgres.schema import Connection

STORE: Final = 'PostgresMemoryStore'


class PostgresMemoryStore(MemoryStore):
    """Keeps notes as rows of one schema. Changes of one notebook wait for each other; reads wait for nobody.

    For what is said of the schema, event loops, pools and poolers, see `PostgresStepStore`.

    Args:
        dsn: Where the database is; the store makes a pool of its own. Or the open connections of another store, with
            their schema and bounds; they stay open.
        pool: A pool instead, which stays open and as it is, with whatever codecs it has.
        schema: The schema to use; it is made unless it is there.
        max_pool_size: How many connections the store's own pool may open.
        acquire_timeout: How many seconds a call may wait for a connection before it raises `StoreUnavailableError`.
    """

    def __init__(
        self,
        dsn: str | Connections | None = None,
        *,
        pool: asyncpg.Pool | None = None,
        schema: str = DEFAULT_SCHEMA,
        max_pool_size: int = 10,
        acquire_timeout: float = 30.0,
    ) -> None:
        self._connections, self._queries = open_connections(
            dsn,
            pool,
            schema=schema,
            max_pool_size=max_pool_size,
            acquire_timeout=acquire_timeout,
            store=STORE,
            package='harness_temporal.memory.postgres',
        )
        self._is_shared = self._connections is dsn

    async def aclose(self) -> None:
        """Close the store, and its pool unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._connections.aclose()

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        # A character has at least one byte, so one more character than bytes shows whether there is more.
        rows = await self._fetch('glance', notebook, name, max_bytes + 1, max_names + 1)
        data = next((row['head'].encode() for row in rows if row['head'] is not None), None)
        others = [row['name'] for row in rows if row['head'] is None]
        return Glance.of(data, others, max_bytes=max_bytes, max_names=max_names)

    async def _read(self, notebook: Notebook, name: str) -> str | None:
        rows = await self._fetch('read', notebook, name)
        return rows[0]['text'] if rows else None

    async def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        last = ''
        while rows := await self._fetch('page', notebook, last, PAGE):
            notes = [Note(row['name'], row['text']) for row in rows]
            yield notes
            last = notes[-1].name

    async def forget(self, notebook: Notebook) -> None:
        async def work(connection: Connection) -> None:
            for row in await connection.fetch(self._queries['forget'], notebook.agent, notebook.namespace):
                for what in ('forget_notes', 'forget_operations'):
                    await connection.fetch(self._queries[what], row['id'])

        await self._connections.transact(work)

    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        return await self._connections.transact(lambda connection: self._change(connection, notebook, name, edit, key))

    async def _change(self, connection: Connection, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        [held] = await connection.fetch(self._queries['hold'], notebook.agent, notebook.namespace)
        number, operations = held['id'], held['operations']
        [before] = await connection.fetch(self._queries['before'], number, key, name)
        if before['done'] is not None:
            return before['done']
        text = edited(name, before['text'], edit)
        if text is None:
            await connection.fetch(self._queries['delete'], number, name)
        else:
            await connection.fetch(self._queries['put'], number, name, text)
        revision = revision_of(text)
        oldest = operations - OPERATIONS_KEPT
        await connection.fetch(self._queries['record'], number, key, operations, revision, oldest)
        return revision

    async def _fetch(self, query: str, notebook: Notebook, *arguments: object) -> list[Row]:
        return await self._connections.fetch(self._queries[query], notebook.agent, notebook.namespace, *arguments)
