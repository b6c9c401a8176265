"""What the databases' stores have beside the contract: forgetting, sharing, and connections of any kind."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.databases.sqlite import SqliteDatabase
from harness_temporal.errors import ConfigurationError
from harness_temporal.media import SqliteMediaStore
from harness_temporal.memory import (
    MAIN,
    Append,
    Glance,
    InMemoryMemoryStore,
    MemoryStore,
    MongoMemoryStore,
    Note,
    Notebook,
    PostgresMemoryStore,
    SqliteMemoryStore,
)
from tests.backends import DATABASES
from tests.conformance.opening import drop_schema
from tests.mongo_server import drop_database
from tests.postgres_server import Sql

BOOK = Notebook('librarian', 'user-1')


@pytest.fixture(params=['memory', *DATABASES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore]:
    name = f'memory_{uuid4().hex}'
    async with AsyncExitStack() as stack:
        if request.param == 'memory':
            store: MemoryStore = InMemoryMemoryStore()
        elif request.param == 'sqlite':
            store = SqliteMemoryStore(tmp_path / 'memory.db')
        elif request.param == 'postgres':
            dsn = request.getfixturevalue('postgres')
            stack.push_async_callback(drop_schema, dsn, name)
            store = PostgresMemoryStore(dsn, schema=name)
        else:
            url = request.getfixturevalue('mongo')
            stack.push_async_callback(drop_database, url, name)
            store = MongoMemoryStore(db_url=url, database=name)
        stack.push_async_callback(store.aclose)
        yield store


async def test_the_oldest_operations_are_forgotten(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[type(store).__module__], 'OPERATIONS_KEPT', 3)
    other = Notebook('librarian', 'user-2')
    await store.edit(other, MAIN, Append('a'), key='a')
    for key in ('a', 'b', 'c', 'd'):
        await store.edit(BOOK, MAIN, Append(key), key=key)
    for key in ('b', 'd'):
        await store.edit(BOOK, MAIN, Append(key), key=key)
    assert await store.read(BOOK, MAIN) == Note(MAIN, 'a\nb\nc\nd')
    await store.edit(BOOK, MAIN, Append('a'), key='a')
    assert await store.read(BOOK, MAIN) == Note(MAIN, 'a\nb\nc\nd\na')
    await store.edit(other, MAIN, Append('a'), key='a')
    assert await store.read(other, MAIN) == Note(MAIN, 'a'), 'each notebook has its own'


TABLES = ('memory_notebooks', 'memory_notes', 'memory_operations')


async def test_no_row_of_sqlite_is_left_of_a_forgotten_notebook(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / 'memory.db', check_same_thread=False)
    store = SqliteMemoryStore(connection=connection)
    await store.edit(BOOK, MAIN, Append('a'), key='a')
    await store.forget(BOOK)
    assert [connection.execute(f'SELECT count(*) FROM {table}').fetchone() for table in TABLES] == [(0,)] * 3
    connection.close()


@pytest.mark.postgres
async def test_no_row_of_postgres_is_left_of_a_forgotten_notebook(postgres: str, schema: str, sql: Sql) -> None:
    store = PostgresMemoryStore(postgres, schema=schema)
    await store.edit(BOOK, MAIN, Append('a'), key='a')
    await store.forget(BOOK)
    await store.aclose()
    assert [(await sql(f'SELECT count(*) FROM {table}'))[0]['count'] for table in TABLES] == [0] * 3


# --- one database for several stores ---


async def test_a_sqlite_database_is_shared(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / 'all.db', None)
    media, memory = SqliteMediaStore(database), SqliteMemoryStore(database)
    uri = await media.put(b'blob')
    await memory.edit(BOOK, MAIN, Append('note'), key='1')
    await memory.aclose()
    assert await media.get(uri) == b'blob'
    assert await memory.read(BOOK, MAIN) == Note(MAIN, 'note')
    await database.aclose()


@pytest.mark.parametrize('kind', [SqliteMediaStore, SqliteMemoryStore])
async def test_a_shared_sqlite_database_takes_no_connection(
    kind: type[SqliteMediaStore | SqliteMemoryStore], tmp_path: Path
) -> None:
    database = SqliteDatabase(tmp_path / 'all.db', None)
    connection = sqlite3.connect(':memory:', check_same_thread=False)
    with closing(connection), pytest.raises(ConfigurationError, match='give no `connection`'):
        kind(database, connection=connection)


@pytest.mark.postgres
async def test_connections_of_postgres_are_shared(postgres: str, schema: str) -> None:
    from harness_temporal.databases.postgres.connections import Connections
    from harness_temporal.databases.postgres.sql import Statements
    from harness_temporal.media import PostgresMediaStore

    statements = Statements(schema, 'harness_temporal.media.postgres')
    connections = Connections(postgres, None, statements, max_pool_size=2, acquire_timeout=5)
    media, memory = PostgresMediaStore(connections), PostgresMemoryStore(connections)
    uri = await media.put(b'blob')
    await memory.edit(BOOK, MAIN, Append('note'), key='1')
    await memory.aclose()
    assert await media.get(uri) == b'blob'
    with pytest.raises(ConfigurationError):
        PostgresMemoryStore(connections, schema='another')
    await connections.aclose()


@pytest.mark.mongo
async def test_a_database_of_mongo_is_shared(mongo: str, database: str) -> None:
    from harness_temporal.databases.mongo import Database

    shared = Database(None, mongo, database, timeout=10)
    memory = MongoMemoryStore(database=shared)
    await memory.edit(BOOK, MAIN, Append('note'), key='1')
    await memory.aclose()
    assert await memory.read(BOOK, MAIN) == Note(MAIN, 'note')
    with pytest.raises(ConfigurationError):
        MongoMemoryStore(db_url=mongo, database=shared)
    await shared.aclose()


# --- connections as they come ---


async def test_a_given_connection_may_have_any_encoding_and_factories(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / 'memory.db', check_same_thread=False)
    connection.execute("PRAGMA encoding = 'UTF-16le'")
    connection.text_factory = lambda data: 0  # pyright: ignore[reportUnknownLambdaType]
    connection.row_factory = sqlite3.Row
    store = SqliteMemoryStore(connection=connection)
    for name in (MAIN, 'plan'):
        revision = await store.edit(BOOK, name, Append('ünïcode'), key=name)
        assert await store.edit(BOOK, name, Append('ünïcode'), key=name) == revision
    glance = await store.glance(BOOK, name=MAIN, max_bytes=4, max_names=9)
    assert glance == Glance('ün', True, ('plan',), False)
    assert [page async for page in store.pages(BOOK)] == [[Note(MAIN, 'ünïcode'), Note('plan', 'ünïcode')]]
    connection.close()


@pytest.mark.parametrize(
    ('store', 'driver', 'settings', 'extra'),
    [
        (PostgresMemoryStore, 'harness_temporal.databases.postgres.connections', {'dsn': 'postgresql://x'}, 'postgres'),
        (MongoMemoryStore, 'harness_temporal.databases.mongo', {'db_url': 'mongodb://x'}, 'mongo'),
    ],
    ids=['postgres', 'mongo'],
)
def test_a_store_without_its_driver_says_which_extra_to_install(
    store: Any, driver: str, settings: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigurationError, match=rf'harness-temporal\[{extra}\]'):
        store(**settings)
