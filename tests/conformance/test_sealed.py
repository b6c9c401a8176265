"""The rules about histories and bodies hold with keys too. What is left out here does not depend on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness_temporal.encryption import Key, KeyRing
from harness_temporal.stores import FileStepStore, SqliteStepStore
from harness_temporal.testing import (
    ContentConformance,
    OpenStore,
    ResponsesConformance,
    SnapshotsConformance,
)
from tests.conformance.opening import closing_what_it_opens
from tests.conformance.places import UsedSchema, used_schema

KEYS = KeyRing.of(Key('k1', bytes(32)))


@pytest.fixture(scope='module')
def used(postgres: str) -> Iterator[UsedSchema]:
    with used_schema(postgres) as used:
        yield used


class Rules(ResponsesConformance):
    """Those that depend on how a backend keeps histories and bodies."""

    persistent = True

    test_whole_history = SnapshotsConformance.test_long_history_reads_back_in_order
    test_replaced_history = SnapshotsConformance.test_one_run_may_replace_its_history
    test_extension = SnapshotsConformance.test_encoded_snapshot_extends_a_history_that_is_there
    test_extensions = SnapshotsConformance.test_encoded_snapshots_may_extend_each_other_one_message_at_a_time
    test_extension_of_its_batch = SnapshotsConformance.test_encoded_snapshot_may_extend_one_of_its_own_batch
    test_unknown_base = SnapshotsConformance.test_unknown_base_is_refused_and_nothing_written
    test_dropped_snapshot = SnapshotsConformance.test_dropped_snapshot_needs_no_history
    test_refused_batch = SnapshotsConformance.test_history_of_a_refused_batch_cannot_be_extended


class TestSealedSqliteStepStore(Rules):
    # Encryption is the same for every backend, so what goes through it is tried with one of them.
    test_messages = SnapshotsConformance.test_every_kind_of_message_reads_back_equal
    test_text_of_an_event = ContentConformance.test_text_of_an_event_reads_back
    test_text_of_an_effect = ContentConformance.test_text_of_an_effect_reads_back_and_is_found
    test_text_of_a_message = ContentConformance.test_text_anywhere_in_a_message_reads_back
    test_bytes = ContentConformance.test_bytes_of_effects_and_responses_read_back

    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with closing_what_it_opens(
            lambda bound: SqliteStepStore(tmp_path / 'runs.db', max_snapshots_per_run=bound, keys=KEYS)
        ) as open_store:
            yield open_store


class TestSealedFileStepStore(Rules):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with closing_what_it_opens(
            lambda bound: FileStepStore(tmp_path / 'runs', max_snapshots_per_run=bound, keys=KEYS)
        ) as open_store:
            yield open_store


@pytest.mark.postgres
class TestSealedPostgresStepStore(Rules):
    @pytest.fixture
    async def open_store(self, postgres: str, used: UsedSchema) -> AsyncIterator[OpenStore]:
        from harness_temporal.stores import PostgresStepStore

        async with (
            used.taken() as schema,
            closing_what_it_opens(
                lambda bound: PostgresStepStore(postgres, schema=schema, max_snapshots_per_run=bound, keys=KEYS)
            ) as open_store,
        ):
            yield open_store


@pytest.mark.mongo
class TestSealedMongoStepStore(Rules):
    @pytest.fixture
    async def open_store(self, mongo: str, database: str) -> AsyncIterator[OpenStore]:
        from harness_temporal.stores import MongoStepStore

        async with closing_what_it_opens(
            lambda bound: MongoStepStore(db_url=mongo, database=database, max_snapshots_per_run=bound, keys=KEYS)
        ) as open_store:
            yield open_store
