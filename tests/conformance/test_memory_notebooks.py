from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harness_temporal.memory import FileMemoryStore, InMemoryMemoryStore, MemoryStore, SqliteMemoryStore
from harness_temporal.testing import MemoryStoreConformance, OpenMemoryStore


@asynccontextmanager
async def closing_what_it_opens(make: Callable[[], MemoryStore]) -> AsyncIterator[OpenMemoryStore]:
    async with AsyncExitStack() as stack:

        async def open_memory() -> MemoryStore:
            memory = make()
            stack.push_async_callback(memory.aclose)
            return memory

        yield open_memory


class TestInMemoryMemoryStore(MemoryStoreConformance):
    persistent = False

    @pytest.fixture
    async def open_memory(self) -> AsyncIterator[OpenMemoryStore]:
        memory = InMemoryMemoryStore()
        async with closing_what_it_opens(lambda: memory) as open_memory:
            yield open_memory


class TestFileMemoryStore(MemoryStoreConformance):
    @pytest.fixture
    async def open_memory(self, tmp_path: Path) -> AsyncIterator[OpenMemoryStore]:
        async with closing_what_it_opens(lambda: FileMemoryStore(tmp_path / 'memory')) as open_memory:
            yield open_memory


class TestSqliteMemoryStore(MemoryStoreConformance):
    @pytest.fixture
    async def open_memory(self, tmp_path: Path) -> AsyncIterator[OpenMemoryStore]:
        async with closing_what_it_opens(lambda: SqliteMemoryStore(tmp_path / 'memory.db')) as open_memory:
            yield open_memory


@pytest.mark.postgres
class TestPostgresMemoryStore(MemoryStoreConformance):
    @pytest.fixture
    async def open_memory(self, postgres: str, schema: str) -> AsyncIterator[OpenMemoryStore]:
        from harness_temporal.memory import PostgresMemoryStore

        async with closing_what_it_opens(lambda: PostgresMemoryStore(postgres, schema=schema)) as open_memory:
            yield open_memory


@pytest.mark.mongo
class TestMongoMemoryStore(MemoryStoreConformance):
    @pytest.fixture
    async def open_memory(self, mongo: str, database: str) -> AsyncIterator[OpenMemoryStore]:
        from harness_temporal.memory import MongoMemoryStore

        async with closing_what_it_opens(lambda: MongoMemoryStore(db_url=mongo, database=database)) as open_memory:
            yield open_memory
