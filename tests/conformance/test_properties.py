"""Random batches: every store gives the same answers as the one in memory, after each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_temporal.errors import HarnessError, ToolEffectConflictError
from harness_temporal.records import (
    EncodedSnapshot,
    EventKind,
    Record,
    SnapshotState,
    ToolEffectStatus,
    ToolOutcome,
    utc_now,
)
from harness_temporal.stores import (
    BaseStepStore,
    FileStepStore,
    InMemoryStepStore,
    MongoStepStore,
    PostgresStepStore,
    SqliteStepStore,
    StepStore,
)
from harness_temporal.testing.samples import (
    LIMA,
    NOON,
    SEOUL,
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_event,
    an_extension,
    asks,
    turns,
)
from tests.conformance.opening import drop_schema
from tests.mongo_server import drop_database

RUN_IDS = ['run-1', 'RUN-1']
CALL_IDS = ['', 'call-1', 'call-2']
KEYS = [None, '', 'a', 'b', 'B']
TOPICS = ['turn', 'fork']

run_ids = st.sampled_from(RUN_IDS)
keys = st.sampled_from(KEYS)
text = st.text(alphabet=st.characters(exclude_categories=()), max_size=6)
optional_text = st.none() | text
times = st.builds(
    lambda seconds, zone: (NOON + timedelta(seconds=seconds)).astimezone(zone),
    st.integers(-2, 2),
    st.sampled_from([NOON.tzinfo, SEOUL, LIMA]),
)
metadata = st.dictionaries(text, text, max_size=2)

runs = st.builds(
    a_run,
    run_ids,
    registration_id=keys,
    started_at=times,
    conversation_id=keys,
    parent_run_id=keys,
    agent_name=optional_text,
    metadata=metadata,
)
events = st.builds(
    an_event,
    run_ids,
    kind=st.sampled_from(get_args(EventKind)),
    step_index=st.integers(0, 3),
    timestamp=times,
    error=optional_text,
    tool_call_id=optional_text,
    metadata=metadata,
    idempotency_key=keys,
)
histories = st.builds(lambda length, topic: turns(length, topic=topic), st.integers(0, 5), st.sampled_from(TOPICS))
snapshots = st.builds(
    # What a key stands for never changes, as in a replay: what becomes of the history of a dropped snapshot is open.
    lambda history, run_id, state, timestamp, key: a_snapshot(
        history if key is None else [asks(key)], run_id, state=state, timestamp=timestamp, idempotency_key=key
    ),
    histories | st.builds(lambda said: [asks(said)], text),
    run_ids,
    st.sampled_from(get_args(SnapshotState)),
    times,
    keys,
)
extensions = st.builds(
    lambda history, base_length, run_id: an_extension(
        history, base_length=min(base_length, len(history)), run_id=run_id
    ),
    histories,
    st.sampled_from([0, 0, 1, 2, 3]),
    run_ids,
)
effects = st.builds(
    a_start,
    run_ids,
    tool_call_id=st.sampled_from(CALL_IDS),
    call_key=st.sampled_from([None, 'a']),
    status=st.sampled_from(get_args(ToolEffectStatus)),
    attempts=st.integers(0, 3),
    holder=st.sampled_from(['worker-a', 'worker-b']),
    started_at=times,
    ended_at=st.none() | times,
    idempotency_key=optional_text,
    effect_summary=optional_text,
    outcome=st.none() | st.sampled_from(get_args(ToolOutcome)),
    value=st.none() | st.binary(max_size=4),
)
responses = st.builds(a_response, run_ids, key=st.sampled_from(['', 'a', 'b']), body=st.binary(max_size=4))


def _bases_first(records: list[Record]) -> list[Record]:
    """Put what extends a history after what it may extend: whether it may come before is open."""
    return sorted(records, key=lambda record: record.history.base_length if isinstance(record, EncodedSnapshot) else 0)


batches = st.lists(runs | events | snapshots | extensions | effects | responses, max_size=5).map(_bases_first)
bounds = st.none() | st.integers(1, 3)


@dataclass
class Reopen:
    """Stands for closing the store and opening another on the same place."""


@dataclass
class Delete:
    """Stands for deleting a run."""

    run_id: str


@dataclass
class Collect:
    """Stands for deleting the messages that no snapshot has."""


Step = list[Record] | Reopen | Delete | Collect
steps = st.lists(batches | batches | st.builds(Reopen) | st.builds(Delete, run_ids) | st.builds(Collect), max_size=8)
MEDIA_THRESHOLD = 4
"""So low that parts of most messages, values and responses are blobs."""


async def _answers(store: BaseStepStore) -> list[tuple[str, Any]]:
    """Ask everything that can be asked."""
    asked: list[tuple[str, Awaitable[Any]]] = [('runs', store.list_runs())]
    asked += [(f'newest {limit} runs', store.list_runs(limit=limit)) for limit in (0, 1, 2)]
    for key in KEYS:
        asked.append((f'runs of conversation {key!r}', store.list_runs(conversation_id=key)))
        asked.append((f'runs of parent {key!r}', store.list_runs(parent_run_id=key, limit=2)))
        asked.append((f'runs of both {key!r}', store.list_runs(parent_run_id=key, conversation_id='a')))
    for run_id in RUN_IDS:
        asked += [
            (f'{run_id}', store.get_run(run_id=run_id)),
            (f'events of {run_id}', store.list_events(run_id=run_id)),
            (f'page of {run_id}', store.list_events(run_id=run_id, after=2, limit=2)),
            (f'effects of {run_id}', store.list_tool_effects(run_id=run_id)),
            (f'unresolved of {run_id}', store.list_unresolved_tool_effects(run_id=run_id)),
            *[
                (f'call {call!r} of {run_id}', store.get_tool_effect(run_id=run_id, tool_call_id=call))
                for call in CALL_IDS
            ],
            *[
                (f'response {key!r} of {run_id}', store.get_model_response(run_id=run_id, key=key))
                for key in ('', 'a', 'b')
            ],
        ]
        for interrupted in (False, True):
            asked += [
                (
                    f'latest snapshot of {run_id}, {interrupted}',
                    store.latest_snapshot(run_id=run_id, include_interrupted=interrupted),
                ),
                *[
                    (
                        f'newest {limit} snapshots of {run_id}, {interrupted}',
                        store.list_snapshots(run_id=run_id, include_interrupted=interrupted, limit=limit),
                    )
                    for limit in (None, 0, 2)
                ],
            ]
    return [(question, _numbered(await answer)) for question, answer in asked]


def _numbered(answer: Any) -> Any:
    """Show the numbers, which are no part of a record's equality."""
    if isinstance(answer, list):
        return [_numbered(item) for item in answer]
    return (answer, getattr(answer, 'seq', None))


async def _outcome(store: StepStore, batch: list[Record]) -> tuple[str, Any]:
    try:
        await store.commit(batch)
    except HarnessError as error:
        # Of several faults in a batch the stores report the same one: they check runs, then effects, then histories.
        return type(error).__name__, error.current if isinstance(error, ToolEffectConflictError) else None
    return 'written', None


async def _compare(steps: list[Step], make: Callable[[], BaseStepStore], bound: int | None) -> None:
    memory, other = InMemoryStepStore(max_snapshots_per_run=bound), make()
    later = utc_now() + timedelta(hours=1)
    try:
        for step in steps:
            match step:
                case Reopen():
                    await other.aclose()
                    other = make()
                case Delete(run_id):
                    assert await memory.delete_runs([run_id]) == await other.delete_runs([run_id])
                case Collect():
                    collected = await memory.collect_messages(untouched_since=later)
                    assert collected == await other.collect_messages(untouched_since=later)
                case _:
                    assert await _outcome(memory, step) == await _outcome(other, step)
            assert await _answers(memory) == await _answers(other)
    finally:
        await other.aclose()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, bound=bounds)
def test_sqlite_answers_like_memory_whatever_is_written(steps: list[Step], bound: int | None) -> None:
    with TemporaryDirectory() as folder:
        make = partial(SqliteStepStore, Path(folder) / 'runs.db', **_settings(bound))
        asyncio.run(_compare(steps, make, bound))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, bound=bounds)
def test_files_answer_like_memory_whatever_is_written(steps: list[Step], bound: int | None) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(_compare(steps, partial(FileStepStore, folder, **_settings(bound)), bound))


@pytest.mark.postgres
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, bound=bounds)
def test_postgres_answers_like_memory_whatever_is_written(postgres: str, steps: list[Step], bound: int | None) -> None:
    schema = f'properties_{uuid4().hex}'

    async def compare_and_drop() -> None:
        await _compare(steps, partial(PostgresStepStore, postgres, schema=schema, **_settings(bound)), bound)
        await drop_schema(postgres, schema)

    asyncio.run(compare_and_drop())


@pytest.mark.mongo
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, bound=bounds)
def test_mongodb_answers_like_memory_whatever_is_written(mongo: str, steps: list[Step], bound: int | None) -> None:
    database = f'properties_{uuid4().hex}'

    async def compare_and_drop() -> None:
        await _compare(steps, partial(MongoStepStore, db_url=mongo, database=database, **_settings(bound)), bound)
        await drop_database(mongo, database)

    asyncio.run(compare_and_drop())


def _settings(bound: int | None) -> dict[str, Any]:
    return {'max_snapshots_per_run': bound, 'media_threshold_bytes': MEDIA_THRESHOLD}


@pytest.mark.parametrize('make', [InMemoryStepStore, lambda: SqliteStepStore(':memory:')], ids=['memory', 'sqlite'])
@settings(max_examples=60, deadline=None)
@given(given=events | runs | effects | snapshots)
def test_any_text_and_time_reads_back(make: Callable[[], StepStore], given: Any) -> None:
    async def round_trip() -> list[Any]:
        store = make()
        try:
            await store.commit([given])
            return [
                *await store.list_runs(),
                *await store.list_events(run_id=given.run_id),
                *await store.list_tool_effects(run_id=given.run_id),
                *await store.list_snapshots(run_id=given.run_id, include_interrupted=True),
            ]
        finally:
            await store.aclose()

    (read,) = asyncio.run(round_trip())
    assert read == given


@settings(max_examples=100, deadline=None)
@given(states=st.lists(st.sampled_from(get_args(SnapshotState)), max_size=12), bound=st.integers(1, 4))
def test_what_is_kept_is_what_the_rule_says(states: list[SnapshotState], bound: int) -> None:
    async def kept() -> list[int]:
        store = InMemoryStepStore(max_snapshots_per_run=bound)
        for index, state in enumerate(states):
            await store.save_snapshot(a_snapshot(turns(1), step_index=index, state=state))
        return [
            snapshot.step_index for snapshot in await store.list_snapshots(run_id='run-1', include_interrupted=True)
        ]

    newest = list(range(len(states)))[-bound:]
    complete = [index for index, state in enumerate(states) if state == 'complete'][-1:]
    assert asyncio.run(kept()) == sorted({*newest, *complete})
