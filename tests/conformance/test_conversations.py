from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from harness_temporal.conversations import BaseConversationStore, SqliteConversationStore
from harness_temporal.stores import BaseStepStore, SqliteStepStore
from harness_temporal.testing import ConversationStoreConformance, OpenPlace, Place


@asynccontextmanager
async def closing_what_it_opens(
    make: Callable[[timedelta], tuple[BaseConversationStore, BaseStepStore]],
) -> AsyncIterator[OpenPlace]:
    async with AsyncExitStack() as stack:

        async def open_place(*, lease: timedelta = timedelta(minutes=2)) -> Place:
            conversations, steps = make(lease)
            stack.push_async_callback(conversations.aclose)
            stack.push_async_callback(steps.aclose)
            return Place(conversations, steps)

        yield open_place


class TestSqliteConversationStore(ConversationStoreConformance):
    busy_by = 'process'

    @pytest.fixture
    async def open_place(self, tmp_path: Path) -> AsyncIterator[OpenPlace]:
        database = tmp_path / 'runs.db'
        async with closing_what_it_opens(
            lambda lease: (SqliteConversationStore(database), SqliteStepStore(database))
        ) as open_place:
            yield open_place


@pytest.mark.postgres
class TestPostgresConversationStore(ConversationStoreConformance):
    busy_by = 'lease'

    @pytest.fixture
    async def open_place(self, postgres: str, schema: str) -> AsyncIterator[OpenPlace]:
        from harness_temporal.conversations import PostgresConversationStore
        from harness_temporal.stores import PostgresStepStore

        async with closing_what_it_opens(
            lambda lease: (
                PostgresConversationStore(postgres, schema=schema, lease=lease),
                PostgresStepStore(postgres, schema=schema),
            )
        ) as open_place:
            yield open_place


@pytest.mark.mongo
class TestMongoConversationStore(ConversationStoreConformance):
    busy_by = 'lease'

    @pytest.fixture
    async def open_place(self, mongo: str, database: str) -> AsyncIterator[OpenPlace]:
        from harness_temporal.conversations import MongoConversationStore
        from harness_temporal.stores import MongoStepStore

        async with closing_what_it_opens(
            lambda lease: (
                MongoConversationStore(db_url=mongo, database=database, lease=lease),
                MongoStepStore(db_url=mongo, database=database),
            )
        ) as open_place:
            yield open_place
