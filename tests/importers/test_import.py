from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.test import TestModel

from harness_temporal.errors import DuplicateRunError, StoreUnavailableError, ToolEffectConflictError
from harness_temporal.records import Batch, ContinuableSnapshot, EncodedSnapshot, RunRecord, ToolEffectRecord
from harness_temporal.step_persistence import continue_run
from harness_temporal.stores import FileStepStore, InMemoryStepStore, SqliteStepStore, StepStore
from harness_temporal.testing.samples import a_run
from tests.backends import PERSISTENT
from tests.conformance.opening import drop_schema
from tests.importers.comparing import NOTHING, PeerStore, assert_same, contents, without_changes
from tests.mongo_server import drop_database


@pytest.fixture(params=PERSISTENT)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StepStore]:
    name = f'imported_{uuid4().hex}'
    if request.param == 'file':
        yield FileStepStore(tmp_path / name)
    elif request.param == 'sqlite':
        store = SqliteStepStore(tmp_path / name)
        yield store
        await store.aclose()
    elif request.param == 'postgres':
        from harness_temporal.stores import PostgresStepStore

        dsn = request.getfixturevalue('postgres')
        postgres = PostgresStepStore(dsn, schema=name)
        yield postgres
        await postgres.aclose()
        await drop_schema(dsn, name)
    else:
        from harness_temporal.stores import MongoStepStore

        url = request.getfixturevalue('mongo')
        mongo = MongoStepStore(db_url=url, database=name)
        yield mongo
        await mongo.aclose()
        await drop_database(url, name)


# --- every layout, every target ---


async def test_everything_is_as_the_peer_reads_it(peer_store: PeerStore) -> None:
    """One test, because the peer takes seconds to make a store."""
    _check_that_the_source_has_what_this_is_about(peer_store)
    target = InMemoryStepStore()
    report = await peer_store.import_into(target)
    assert report.failures == []
    await assert_same(target, peer_store)
    runs = peer_store.view['runs'].values()
    assert report.runs == len(runs)
    assert report.events == sum(len(run['events']) for run in runs)
    assert report.tool_effects == sum(len(run['effects']) for run in runs)
    await _check_that_effects_are_in_the_order_of_their_first_record(target, peer_store)
    await _check_that_data_that_looks_like_a_marker_is_kept(target)


def _check_that_the_source_has_what_this_is_about(peer_store: PeerStore) -> None:
    runs = peer_store.view['runs']
    assert runs['child']['record']['parent_run_id'] == 'parent'
    assert [effect['status'] for effect in runs['failing']['effects']] == ['failed']
    assert runs['failing']['snapshots'][-1]['state'] == 'interrupted'
    assert runs['by-hand']['unresolved'] != []
    assert runs['stray']['record'] is None
    assert all('__harness_external' in snapshot['messages'] for snapshot in runs['parent']['snapshots'][-1:])


async def _check_that_effects_are_in_the_order_of_their_first_record(target: StepStore, peer_store: PeerStore) -> None:
    effects = await target.list_tool_effects(run_id='parent')
    assert [effect.tool_call_id for effect in effects] == [f'call-{number}' for number in range(1, 7)]
    by_hand = [effect.tool_call_id for effect in await target.list_tool_effects(run_id='by-hand')]
    # The peer's table in PostgreSQL says nothing of the order of two that began at the same moment.
    assert by_hand == (['call-1', 'call-2'] if peer_store.backend == 'postgres' else ['call-2', 'call-1'])


async def _check_that_data_that_looks_like_a_marker_is_kept(target: StepStore) -> None:
    snapshots = await target.list_snapshots(run_id='lookalike')
    assert snapshots != []
    [returned] = [
        part for message in snapshots[-1].messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]
    assert returned.content == {
        '__harness_external_media__': True,
        'note': 'not a marker',
        '__harness_external_literal__': {'a': 1},
    }


async def test_target_of_each_kind_gets_everything_once(made_sqlite: PeerStore, target: StepStore) -> None:
    with without_changes(made_sqlite.path.parent):
        first = await made_sqlite.import_into(target)
        await assert_same(target, made_sqlite)
        before = await contents(target, made_sqlite.run_ids)
        second = await made_sqlite.import_into(target)
        assert await contents(target, made_sqlite.run_ids) == before
    assert first == second
    assert first.failures == []


async def test_imported_run_is_continued(made_files: PeerStore) -> None:
    target = InMemoryStepStore()
    await made_files.import_into(target)
    history = await continue_run(target, run_id='parent')
    result = await Agent(TestModel()).run('Go on.', message_history=history)
    assert result.all_messages()[: len(history)] == history


async def test_files_are_not_changed(made_files: PeerStore) -> None:
    with without_changes(made_files.path.parent):
        await made_files.import_into(InMemoryStepStore())


# --- again, and after an end in the middle ---


class CutOff(InMemoryStepStore):
    """Fails at one commit."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.commits: list[Batch] = []
        self.at = at

    async def commit(self, records: Batch) -> None:
        self.commits.append(records)
        if len(self.commits) == self.at:
            raise StoreUnavailableError('CutOff', 'gone')
        await super().commit(records)


@pytest.mark.parametrize('at', range(1, 12))
async def test_import_goes_on_after_one_that_was_cut_off(made_files: PeerStore, at: int) -> None:
    target = CutOff(at)
    with pytest.raises(StoreUnavailableError):
        await made_files.import_into(target)
    shown = {run.run_id for run in await target.list_runs()}
    await made_files.import_into(target)
    await assert_same(target, made_files)
    whole = InMemoryStepStore()
    await made_files.import_into(whole)
    assert await contents(target, made_files.run_ids) == await contents(whole, made_files.run_ids)
    # A run that could be seen before was there as a whole.
    written_again = [record for batch in target.commits[at:] for record in batch if isinstance(record, RunRecord)]
    assert shown <= {record.run_id for record in written_again}


async def test_one_snapshot_is_written_at_a_time_and_the_run_last(made_files: PeerStore) -> None:
    target = CutOff(at=0)
    await made_files.import_into(target)
    written: dict[str, list[Any]] = {}
    for batch in target.commits:
        assert sum(isinstance(record, EncodedSnapshot | ContinuableSnapshot) for record in batch) <= 1
        for record in batch:
            run_id = record.snapshot.run_id if isinstance(record, EncodedSnapshot) else record.run_id
            written.setdefault(run_id, []).append(record)
    for run_id, records in written.items():
        assert [isinstance(record, RunRecord) for record in records].count(True) == (run_id != 'stray')
        assert run_id == 'stray' or isinstance(records[-1], RunRecord)


async def test_source_that_went_on_is_added_to(files: PeerStore) -> None:
    target = InMemoryStepStore()
    events = files.path / 'by-hand' / 'events.jsonl'
    whole = events.read_bytes()
    newest = max((files.path / 'by-hand' / 'snapshots').glob('*.json'), key=lambda path: int(path.stem))
    newest.rename(files.path / 'kept')
    events.write_bytes(b''.join(whole.splitlines(keepends=True)[:-1]))
    await files.import_into(target)
    assert len(await target.list_events(run_id='by-hand')) == 2
    events.write_bytes(whole)
    (files.path / 'kept').rename(newest)
    # The peer prunes old snapshots; what was imported keeps its identity nevertheless.
    (newest.parent / '0.json').rename(files.path / 'pruned')
    (newest.parent / '1.json').rename(files.path / 'pruned as well')
    await files.import_into(target)
    assert len(await target.list_events(run_id='by-hand')) == 3
    assert len(await target.list_snapshots(run_id='by-hand')) == 3


async def test_the_same_run_from_a_store_of_another_kind_is_not_doubled(
    made_files: PeerStore, made_sqlite: PeerStore
) -> None:
    target = InMemoryStepStore()
    await made_files.import_into(target)
    before = await contents(target, ['by-hand', 'stray'])
    report = await made_sqlite.import_into(target)
    assert await contents(target, ['by-hand', 'stray']) == before
    # The others were made twice by the peer, at two times.
    assert {failure.run_id for failure in report.failures} == {*made_files.run_ids} - {'by-hand', 'stray'}


# --- what the target has against a run ---


async def test_run_id_of_another_run_is_refused_and_the_others_go_on(made_files: PeerStore) -> None:
    target = InMemoryStepStore()
    await target.commit([a_run('child', registration_id='another')])
    report = await made_files.import_into(target)
    [failure] = report.failures
    assert failure.run_id == 'child'
    assert isinstance(failure.__cause__, DuplicateRunError)
    assert (await contents(target, ['child']))['child'][1:] == NOTHING[1:]
    assert len(await target.list_runs()) == len(made_files.view['listed'])


async def test_ledger_that_went_on_is_not_taken_back(made_files: PeerStore) -> None:
    target = InMemoryStepStore()
    ahead = ToolEffectRecord(
        run_id='by-hand', tool_call_id='call-1', tool_name='pay', status='completed', attempts=2, holder='h'
    )
    await target.commit([ahead])
    report = await made_files.import_into(target)
    [failure] = report.failures
    assert isinstance(failure.__cause__, ToolEffectConflictError)
    run, events, effects, snapshots = (await contents(target, ['by-hand']))['by-hand']
    assert (run, events, snapshots) == (None, [], [])
    assert [effect['attempts'] for effect in effects] == [2]


async def test_dry_run_asks_nothing_of_the_target(made_files: PeerStore) -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    report = await made_files.import_into(Untouchable(), dry_run=True)  # type: ignore[arg-type]
    real = await made_files.import_into(InMemoryStepStore())
    assert report == real


async def test_progress_counts_every_run(made_files: PeerStore) -> None:
    told: list[tuple[int, int]] = []
    await made_files.import_into(InMemoryStepStore(), on_run=lambda done, total: told.append((done, total)))
    assert told == [(done, 7) for done in range(1, 8)]
