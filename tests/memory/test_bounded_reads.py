"""What one injection reads of a notebook of 5,000 notes whose main note is one line of 64 KB."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent

from harness_temporal.memory import (
    MAIN,
    Append,
    FileMemoryStore,
    Memory,
    MemoryStore,
    Notebook,
    SqliteMemoryStore,
    file,
)
from harness_temporal.memory.injection import BYTES_PER_TOKEN, Budget
from harness_temporal.memory.sqlite import GLANCE
from tests.memory.models import Caller
from tests.postgres_server import Sql

BOOK = Notebook('librarian', 'default')
LINE = 'x' * 65_536
NAMES = [f'note-{number:04}' for number in range(5000)]
TEXT = 'a note of its own ' * 10
BUDGET = Budget(2000, 200)


async def block_shown(store: MemoryStore) -> str:
    caller = Caller()
    await Agent(caller.model, name='librarian', capabilities=[Memory(store=store)]).run('go')
    [[block]] = caller.blocks
    return block


def check_block(block: str) -> None:
    size = len(block.encode())
    assert 0.95 * BUDGET.max_tokens * BYTES_PER_TOKEN < size <= BUDGET.max_tokens * BYTES_PER_TOKEN
    assert 'xxx\n--- main goes on' in block
    assert 'note-0000, note-0001' in block


async def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileMemoryStore(tmp_path)
    await store.edit(BOOK, MAIN, Append(LINE), key='1')
    folder = tmp_path / file.folder_name(BOOK.agent) / file.folder_name(BOOK.namespace)
    for name in NAMES:
        (folder / f'{name}.md').write_text(TEXT)

    read, sizes = file.Folder.read, list[int]()

    def counting(self: file.Folder, *arguments: Any, **settings: Any) -> bytes | None:
        data = read(self, *arguments, **settings)
        sizes.append(len(data or b''))
        return data

    monkeypatch.setattr(file.Folder, 'read', counting)
    check_block(await block_shown(store))
    assert sizes == [BUDGET.max_bytes + 1]


async def test_sqlite(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / 'memory.db', check_same_thread=False)
    store = SqliteMemoryStore(connection=connection)
    await store.edit(BOOK, MAIN, Append(LINE), key='1')
    connection.executemany('INSERT INTO memory_notes VALUES (1, ?, ?)', [(name, TEXT.encode()) for name in NAMES])
    connection.commit()

    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    check_block(await block_shown(store))
    connection.set_trace_callback(None)
    assert [statement.split()[0] for statement in statements] == ['BEGIN', 'SELECT', 'COMMIT']

    place = (BOOK.agent, BOOK.namespace, MAIN)
    parameters = (BUDGET.max_bytes + 1, *place, *place, BUDGET.max_names + 1)
    rows = connection.execute(GLANCE, parameters).fetchall()
    assert len(rows) == BUDGET.max_names + 2
    assert [len(text) for _, text in rows if text is not None] == [BUDGET.max_bytes + 1]
    plan = [step for *_, step in connection.execute(f'EXPLAIN QUERY PLAN {GLANCE}', parameters)]
    searches = [step for step in plan if 'memory_' in step]
    assert len(searches) == 4
    assert all(step.startswith('SEARCH memory_') for step in searches), plan
    assert not any('TEMP B-TREE' in step for step in plan), plan
    connection.close()


@pytest.mark.postgres
async def test_postgres(postgres: str, schema: str, sql: Sql) -> None:
    from harness_temporal.memory import PostgresMemoryStore

    store = PostgresMemoryStore(postgres, schema=schema)
    await store.edit(BOOK, MAIN, Append(LINE), key='1')
    await sql(
        'INSERT INTO memory_notes SELECT notebook_id, unnest($1::text[]), $2 FROM memory_notes WHERE name = $3',
        NAMES,
        TEXT,
        MAIN,
    )
    # As in a database that is in use: the planner knows how large the table is.
    await sql('ANALYZE memory_notes')
    check_block(await block_shown(store))

    arguments = (BOOK.agent, BOOK.namespace, MAIN, BUDGET.max_bytes + 1, BUDGET.max_names + 1)
    [[text]] = await sql(f'EXPLAIN (ANALYZE, FORMAT JSON) {store._queries["glance"]}', *arguments)
    nodes = list(_nodes(json.loads(text)[0]['Plan']))
    scans = [node for node in nodes if node.get('Relation Name') == 'memory_notes']
    assert {node['Node Type'] for node in scans} <= {'Index Scan', 'Index Only Scan'}
    assert sorted(node['Actual Rows'] for node in scans) == [1, BUDGET.max_names + 1]
    assert sum(node.get('Rows Removed by Filter', 0) for node in nodes) <= 1
    assert not any(node['Node Type'] == 'Sort' for node in nodes)
    await store.aclose()


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get('Plans', []) for node in _nodes(child))]


@pytest.mark.mongo
async def test_mongo(mongo: str, database: str) -> None:
    from pymongo import AsyncMongoClient
    from pymongo.monitoring import CommandListener, CommandStartedEvent, CommandSucceededEvent

    from harness_temporal.memory import MongoMemoryStore

    class Replies(CommandListener):
        def __init__(self) -> None:
            self.found: list[Sequence[Any]] = []
            self.commands: list[str] = []

        def started(self, event: CommandStartedEvent) -> None:
            self.commands.append(event.command_name)

        def succeeded(self, event: CommandSucceededEvent) -> None:
            if event.command_name == 'find':
                self.found.append(event.reply['cursor']['firstBatch'])

        def failed(self, event: Any) -> None: ...

    replies = Replies()
    client: AsyncMongoClient[Any] = AsyncMongoClient(mongo, event_listeners=[replies])
    store = MongoMemoryStore(client, database=database)
    await store.edit(BOOK, MAIN, Append(LINE), key='1')
    documents = [{'_id': f'{BOOK.digest}:{note}', 'text': TEXT} for note in NAMES]
    await client[database]['memory_notes'].insert_many(documents)

    replies.commands.clear()
    replies.found.clear()
    check_block(await block_shown(store))
    # Two requests at once: the server gives a part of one collection only for one question.
    assert replies.commands.count('find') == len(replies.found) == 2
    assert {*replies.commands} <= {'find', 'getMore'}
    texts, others = sorted(replies.found, key=len)
    assert [len(document['text']) for document in texts] == [len(LINE)]
    assert all(set(document) == {'_id'} for document in others)
    assert len(others) <= BUDGET.max_names + 1
    await client.close()
