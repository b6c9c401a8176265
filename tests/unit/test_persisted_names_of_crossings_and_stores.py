"""More names that are for ever: what crosses into activities, and what the file and MongoDB stores call things."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from pathlib import Path
from uuid import uuid4

import pytest

from harness_temporal.step_persistence import FileStepStore, facts
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal import headers, run_context, snapshots
from harness_temporal.testing.samples import a_run, a_snapshot, a_start, an_event, asks
from harness_temporal.tools import RECOVERY_RETRY_SAFE_METADATA_KEY
from tests.mongo_server import drop_database


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('RunFacts', 'run_id registration_id conversation_id parent_run_id agent_name metadata attempt'),
        ('EventFacts', 'kind step_index subject attempt tool_call_id tool_name error outcome'),
        ('SnapshotFacts', 'save step_index state base base_length bodies'),
        ('ToolCallFacts', 'tool_call_id tool_name step_index occurrence call_key retryable announced'),
        ('EndedToolCall', 'call outcome value error idempotency_key effect_summary'),
        ('ModelRequestFacts', 'step_index subject save snapshot frontier_save pending events'),
    ],
)
def test_fields_of_what_crosses_into_activities(name: str, expected: str) -> None:
    assert [field.name for field in fields(getattr(facts, name))] == expected.split()


def test_names_in_histories() -> None:
    assert run_context.FRAMES_KEY == 'harness_frames'
    assert headers.PARENT_RUN_HEADER == 'harness-parent-run-id'
    assert snapshots.LOAD_SNAPSHOT_ACTIVITY == 'harness_temporal__load_snapshot'
    assert RECOVERY_RETRY_SAFE_METADATA_KEY == 'harness_temporal.recovery_retry_safe'


async def write_one_of_each(store: StepStore) -> None:
    await store.commit([a_run(), a_start(), an_event(), a_snapshot([asks('x')])])
    await store.aclose()


def test_files_of_the_file_store(tmp_path: Path) -> None:
    asyncio.run(write_one_of_each(FileStepStore(tmp_path)))
    run = tmp_path / 'run-1'
    named = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob('*') if path.is_file()}
    messages = {name for name in named if name.startswith('messages/')}
    assert len(messages) == 1
    assert named - messages == {
        '.journal',
        '.registered',
        'run-1/.journal',
        'run-1/run.json',
        'run-1/events.jsonl',
        'run-1/tool_effects.jsonl',
        'run-1/snapshot-keys.jsonl',
        'run-1/snapshots/3.json',
    }
    assert set(json.loads((run / 'run.json').read_text())) >= {'run_id', 'metadata', 'started_at'}
    assert 'head' in json.loads((run / 'snapshots' / '3.json').read_text())


@pytest.mark.mongo
async def test_collections_of_mongodb(mongo: str) -> None:
    from pymongo import AsyncMongoClient

    from harness_temporal.stores import MongoStepStore

    database = f'names_{uuid4().hex}'
    await write_one_of_each(MongoStepStore(db_url=mongo, database=database))
    async with AsyncMongoClient[dict[str, object]](mongo) as client:
        found = set(await client[database].list_collection_names())
    await drop_database(mongo, database)
    assert found >= {
        'runs',
        'events',
        'snapshots',
        'snapshot_idempotency_keys',
        'tool_effects',
        'counters',
        'messages',
        'history_links',
        'model_responses',
    }
