"""A place for stores of one kind, and every byte that an onlooker of it sees."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from anyio import to_thread

from harness_temporal.conversations import (
    BaseConversationStore,
    MongoConversationStore,
    PostgresConversationStore,
    SqliteConversationStore,
)
from harness_temporal.stores import BaseStepStore, FileStepStore, MongoStepStore, PostgresStepStore, SqliteStepStore
from tests.conformance.opening import drop_schema
from tests.mongo_server import drop_database


@dataclass(frozen=True)
class Place:
    """Opens stores on one place; they are closed at its end."""

    kind: str
    _stack: AsyncExitStack
    _steps: Callable[..., BaseStepStore]
    _conversations: Callable[..., BaseConversationStore] | None
    raw: Callable[[], Awaitable[bytes]]
    """Gives all that is stored, with nothing between an onlooker and it but the server."""

    def steps(self, **settings: Any) -> BaseStepStore:
        store = self._steps(**settings)
        self._stack.push_async_callback(store.aclose)
        return store

    def conversations(self, **settings: Any) -> BaseConversationStore:
        if self._conversations is None:
            pytest.skip(f'there is no conversation store of the kind {self.kind}')
        store = self._conversations(**settings)
        self._stack.push_async_callback(store.aclose)
        return store


@asynccontextmanager
async def new_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> AsyncGenerator[Place]:
    """Yield a place where nothing is yet."""
    name = f'sealed_{uuid4().hex}'
    async with AsyncExitStack() as stack:
        match kind:
            case 'file':
                path = folder / 'runs'
                yield Place(kind, stack, lambda **more: FileStepStore(path, **more), None, lambda: _of_files(path))
            case 'sqlite':
                path = folder / 'database' / 'runs.db'
                path.parent.mkdir()
                yield Place(
                    kind,
                    stack,
                    lambda **more: SqliteStepStore(path, **more),
                    lambda **more: SqliteConversationStore(path, **more),
                    lambda: _of_files(path.parent),
                )
            case 'postgres':
                dsn: str = request.getfixturevalue('postgres')
                stack.push_async_callback(drop_schema, dsn, name)
                yield Place(
                    kind,
                    stack,
                    lambda **more: PostgresStepStore(dsn, schema=name, **more),
                    lambda **more: PostgresConversationStore(dsn, schema=name, **more),
                    lambda: _of_postgres(dsn, name),
                )
            case _:
                url: str = request.getfixturevalue('mongo')
                stack.push_async_callback(drop_database, url, name)
                yield Place(
                    kind,
                    stack,
                    lambda **more: MongoStepStore(db_url=url, database=name, **more),
                    lambda **more: MongoConversationStore(db_url=url, database=name, **more),
                    lambda: _of_mongo(url, name),
                )


def seen_in(raw: bytes, secrets: Iterable[bytes]) -> list[bytes]:
    """Return those of the secrets that are there, as they are or as Base64."""
    return [secret for secret in secrets if any(form in raw for form in _forms(secret))]


def _forms(secret: bytes) -> list[bytes]:
    # What stands before the secret decides how its bytes are grouped; the first and last group have bytes of others.
    groups = (secret[skipped:] for skipped in range(3))
    return [secret, *(b64encode(group[: len(group) // 3 * 3]) for group in groups)]


async def _of_files(folder: Path) -> bytes:
    return await to_thread.run_sync(_bytes_in, folder)


def _bytes_in(folder: Path) -> bytes:
    return b'\n'.join(path.read_bytes() for path in sorted(folder.rglob('*')) if path.is_file())


async def _of_postgres(dsn: str, schema: str) -> bytes:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch('SELECT tablename FROM pg_tables WHERE schemaname = $1', schema)
        rows = [row for table in tables for row in await connection.fetch(f'SELECT * FROM {schema}.{table[0]}')]
    finally:
        await connection.close()
    values = [value for row in rows for value in row.values()]
    return b'\n'.join(value if isinstance(value, bytes) else str(value).encode() for value in values)


async def _of_mongo(url: str, database: str) -> bytes:
    from bson import encode
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient[dict[str, Any]](url) as client:
        names = await client[database].list_collection_names()
        found = [item for name in names for item in await client[database][name].find().to_list()]
    return b'\n'.join(encode(document) for document in found)
