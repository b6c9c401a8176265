from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from harness_temporal.stores.sqlite import SqliteStepStore
from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens


class TestSqliteStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = True

    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        database = tmp_path / 'runs.db'
        async with closing_what_it_opens(
            lambda bound: SqliteStepStore(database, max_snapshots_per_run=bound)
        ) as open_store:
            yield open_store


class TestSqliteStepStoreInMemory(StepStoreConformance):
    persistent = False

    @pytest.fixture
    async def open_store(self) -> AsyncIterator[OpenStore]:
        async with closing_what_it_opens(
            lambda bound: SqliteStepStore(':memory:', max_snapshots_per_run=bound)
        ) as open_store:
            yield open_store


class TestSqliteStepStoreOnAGivenConnection(StepStoreConformance):
    persistent = False  # a connection has one store

    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        with closing(sqlite3.connect(tmp_path / 'app.db', check_same_thread=False)) as connection:
            async with closing_what_it_opens(
                lambda bound: SqliteStepStore(connection=connection, max_snapshots_per_run=bound)
            ) as open_store:
                yield open_store
