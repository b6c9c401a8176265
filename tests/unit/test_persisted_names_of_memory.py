"""Names that are for ever: of notebooks in every store, and of a memory's activities and tools in histories."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio import activity

from harness_temporal import HarnessDurability, Memory
from harness_temporal.memory import MAIN, Append, FileMemoryStore, Notebook, SqliteMemoryStore
from harness_temporal.memory.mongo import store as mongo
from harness_temporal.memory.mongo.indexes import INDEXES
from harness_temporal.memory.notes import revision_of

BOOK = Notebook('Ann & Co', 'user-1')
DIGEST = '4f7a6d709d6a23233361f9671c89caa793470e5a57af9491ed1adbf45a6f3405'


def test_revisions_and_digests() -> None:
    assert (MAIN, revision_of('likes tea'), revision_of(None)) == ('main', '50f5f279425da6b8', '')
    assert BOOK.digest == DIGEST


def test_files(tmp_path: Path) -> None:
    asyncio.run(FileMemoryStore(tmp_path).edit(BOOK, MAIN, Append('likes tea'), key='call-1'))
    folder = tmp_path / 'ann-co-75003497c4769dee6fe8fec27b053f0b' / 'user-1-c6c289e49e9c05b2145860387b73bcb1'
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
    operation = json.loads(found.pop('.operations.jsonl'))
    assert operation == {'key': 'call-1', 'note': 'main', 'before': '', 'after': '50f5f279425da6b8'}
    assert found == {'main.md': b'likes tea', '.journal': b''}


async def test_tables_of_sqlite(tmp_path: Path) -> None:
    store = SqliteMemoryStore(tmp_path / 'memory.db')
    await store.edit(BOOK, MAIN, Append('likes tea'), key='call-1')
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / 'memory.db')) as connection:
        assert connection.execute('SELECT * FROM memory_notebooks').fetchall() == [(1, 'Ann & Co', 'user-1', 1)]
        assert connection.execute('SELECT * FROM memory_notes').fetchall() == [(1, 'main', b'likes tea')]
        operation = (1, 'call-1', 0, '50f5f279425da6b8')
        assert connection.execute('SELECT * FROM memory_operations').fetchall() == [operation]
        assert connection.execute('SELECT part, version FROM harness_temporal_schema').fetchall() == [('memory', 1)]


def test_collections_of_mongo() -> None:
    assert set(INDEXES) == {'memory_notebooks', 'memory_notes', 'memory_operations'}
    assert mongo._note(BOOK, 'main') == f'{BOOK.digest}:main'


def test_names_in_histories() -> None:
    memory = Memory[None]()
    agent = Agent(TestModel(), name='librarian', capabilities=[memory, HarnessDurability()])
    durability = HarnessDurability.from_agent(agent)
    assert durability is not None
    names = {activity._Definition.must_from_callable(item).name for item in durability.temporal_activities}
    assert {
        'agent__librarian__capability__memory__load',
        'agent__librarian__toolset__memory__call_tool',
    } <= names
    assert set(memory.get_toolset().tools) == {'write_memory', 'read_memory', 'delete_memory', 'search_memory'}
