"""A batch is one moment: all of it is written, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness_temporal.errors import (
    DuplicateRunError,
    HarnessError,
    HistoryMissingError,
    InvalidRunIdError,
    NotStorableError,
    ToolEffectConflictError,
)
from harness_temporal.records import Record
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import (
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    returns,
    turns,
)

_REFUSED: dict[str, tuple[Callable[[], Record], type[HarnessError], type[Exception]]] = {
    'duplicate run': (lambda: a_run('taken', registration_id='another'), DuplicateRunError, ValueError),
    'ledger conflict': (lambda: a_start('taken', attempts=2), ToolEffectConflictError, HarnessError),
    'missing history': (lambda: an_extension(turns(6), base_length=4), HistoryMissingError, HarnessError),
    'invalid run id': (lambda: an_event('../x'), InvalidRunIdError, ValueError),
    'metadata that is not text': (lambda: an_event(metadata={'a': 1}), NotStorableError, ValueError),
    'message without a JSON form': (lambda: a_snapshot([returns(object())]), NotStorableError, ValueError),
}


class BatchesConformance(StoreTests):
    """Atomicity of a commit."""

    async def test_every_record_of_a_batch_is_there(self, store: StepStore) -> None:
        await store.commit(
            [
                a_response(),
                an_end(),
                an_extension(turns(4), base_length=0, step_index=2),
                a_snapshot(turns(2)),
                an_event(error='first'),
                an_event(error='second'),
                a_run(),
            ]
        )
        assert await store.list_runs() == [a_run()]
        assert [event.error for event in await store.list_events(run_id='run-1')] == ['first', 'second']
        assert [len(snapshot.messages) for snapshot in await store.list_snapshots(run_id='run-1')] == [4, 2]
        assert await store.list_tool_effects(run_id='run-1') == [an_end()]
        assert await store.get_model_response(run_id='run-1', key='request-1') == a_response()

    async def test_numbers_of_a_batch_are_those_of_the_run_without_gaps_or_repeats(self, store: StepStore) -> None:
        for index in range(3):
            await store.commit(
                [a_start(call_key=f'{index}'), an_event(), a_snapshot(turns(2)), an_event(), a_start('run-2')]
            )
        events = await store.list_events(run_id='run-1')
        snapshots = await store.list_snapshots(run_id='run-1')
        effects = await store.list_tool_effects(run_id='run-1')
        assert sorted(record.seq or 0 for record in (*events, *snapshots, *effects)) == list(range(1, 13))
        for records in (events, snapshots, effects):
            numbers = [record.seq or 0 for record in records]
            assert numbers == sorted(numbers)
        # Numbers of a later batch come after all those of an earlier one.
        assert {(record.seq or 0) > 8 for record in (*events[-2:], snapshots[-1], effects[-1])} == {True}

    async def test_batch_may_hold_records_of_several_runs(self, store: StepStore) -> None:
        runs = [f'run-{index}' for index in range(5)]
        await store.commit([record for run_id in runs for record in (a_run(run_id), an_event(run_id))])
        assert [run.run_id for run in await store.list_runs()] == runs
        for run_id in runs:
            assert [event.seq for event in await store.list_events(run_id=run_id)] == [1]

    async def test_empty_batch_changes_nothing(self, store: StepStore) -> None:
        await store.commit([])
        assert await store.list_runs() == []

    async def test_large_batch_keeps_its_order(self, store: StepStore) -> None:
        await store.commit([an_event(step_index=index) for index in range(1000)])
        assert [event.step_index for event in await store.list_events(run_id='run-1')] == list(range(1000))

    @pytest.mark.parametrize('position', ['first', 'last'])
    @pytest.mark.parametrize(('bad', 'error', 'builtin'), _REFUSED.values(), ids=_REFUSED)
    async def test_refused_batch_leaves_nothing_and_blocks_nothing(
        self,
        store: StepStore,
        bad: Callable[[], Record],
        error: type[HarnessError],
        builtin: type[Exception],
        position: str,
    ) -> None:
        await store.commit([a_run('taken'), an_end('taken'), a_start('taken', call_key='open'), an_event('taken')])
        good: list[Record] = [
            a_run(),
            an_event(idempotency_key='key'),
            a_snapshot(turns(2), idempotency_key='key'),
            a_start(),
            a_response(),
            an_event('taken'),
            an_end('taken', call_key='open'),
        ]
        with pytest.raises(error) as caught:
            await store.commit([bad(), *good] if position == 'first' else [*good, bad()])
        assert isinstance(caught.value, HarnessError)
        assert isinstance(caught.value, builtin)
        assert await store.list_runs() == [a_run('taken')]
        assert await store.list_events(run_id='run-1') == []
        assert await store.list_snapshots(run_id='run-1', include_interrupted=True) == []
        assert await store.list_tool_effects(run_id='run-1') == []
        assert await store.get_model_response(run_id='run-1', key='request-1') is None
        assert len(await store.list_events(run_id='taken')) == 1
        assert await store.list_tool_effects(run_id='taken') == [an_end('taken'), a_start('taken', call_key='open')]
        await store.commit(good)
        assert await store.list_runs() == [a_run('taken'), a_run()]
        assert [event.seq for event in await store.list_events(run_id='taken')] == [3, 4]
        assert await store.list_tool_effects(run_id='taken') == [an_end('taken'), an_end('taken', call_key='open')]
        assert len(await store.list_events(run_id='run-1')) == 1
        assert await store.list_snapshots(run_id='run-1') == [a_snapshot(turns(2), idempotency_key='key')]

    async def test_two_runs_of_one_id_in_a_batch_are_refused(self, store: StepStore) -> None:
        with pytest.raises(DuplicateRunError):
            await store.commit([an_event(), a_run(registration_id='one'), a_run(registration_id='two')])
        assert await store.list_runs() == []
        assert await store.list_events(run_id='run-1') == []

    async def test_one_registration_twice_in_a_batch_is_one_run(self, store: StepStore) -> None:
        await store.commit([a_run(agent_name='first'), a_run(agent_name='second')])
        assert await store.list_runs() == [a_run(agent_name='first')]

    async def test_batch_written_again_changes_nothing(self, store: StepStore) -> None:
        batch: list[Record] = [
            a_run(),
            an_event(idempotency_key='key'),
            a_snapshot(turns(2), idempotency_key='key'),
            an_extension(turns(4), base_length=2, idempotency_key='key-2'),
            a_start(),
            an_end(),
            a_response(),
        ]

        async def everything() -> list[object]:
            return [
                *await store.list_runs(),
                *[(event, event.seq) for event in await store.list_events(run_id='run-1')],
                *[(snapshot, snapshot.seq) for snapshot in await store.list_snapshots(run_id='run-1')],
                *[(effect, effect.seq) for effect in await store.list_tool_effects(run_id='run-1')],
                await store.get_model_response(run_id='run-1', key='request-1'),
            ]

        await store.commit(batch)
        before = await everything()
        assert len(before) == 6
        await store.commit(batch)
        assert await everything() == before

    async def test_closing_twice_is_harmless(self, store: StepStore) -> None:
        await store.commit([a_run()])
        await store.aclose()
        await store.aclose()
