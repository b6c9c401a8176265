"""Many tasks on one store at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace

from harness_temporal.errors import DuplicateRunError, HarnessError, ToolEffectConflictError
from harness_temporal.records import Record
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import OpenStore, StoreTests
from harness_temporal.testing.samples import (
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    asks,
    says,
    turns,
)

TASKS = 20


async def _outcomes(writes: Iterable[Coroutine[None, None, None]]) -> list[HarnessError | None]:
    """Run the writes at once and return what each raised; anything that is not of this package is a failure."""
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if result is not None and not isinstance(result, HarnessError):
            raise result
    return [result for result in results if result is None or isinstance(result, HarnessError)]


class ConcurrencyConformance(StoreTests):
    """What parallel writers and readers may rely on."""

    async def test_parallel_appends_get_unique_numbers_without_gaps(self, store: StepStore) -> None:
        await asyncio.gather(*[store.append_event(an_event(step_index=index)) for index in range(2 * TASKS)])
        events = await store.list_events(run_id='run-1')
        assert [event.seq for event in events] == list(range(1, 2 * TASKS + 1))
        assert sorted(event.step_index for event in events) == list(range(2 * TASKS))

    async def test_parallel_batches_stay_together(self, store: StepStore) -> None:
        await asyncio.gather(
            *[
                store.commit([an_event(step_index=index), a_start(call_key=f'{index}'), an_event(step_index=index)])
                for index in range(TASKS)
            ]
        )
        events = await store.list_events(run_id='run-1')
        effects = await store.list_tool_effects(run_id='run-1')
        numbers = sorted(record.seq or 0 for record in (*events, *effects))
        assert numbers == list(range(1, 3 * TASKS + 1))
        for first, second in zip(events[::2], events[1::2], strict=True):
            assert first.step_index == second.step_index

    async def test_parallel_writers_of_different_runs_do_not_disturb_each_other(self, store: StepStore) -> None:
        await asyncio.gather(
            *[store.append_event(an_event(f'run-{index % 5}', step_index=index)) for index in range(2 * TASKS)]
        )
        for run in range(5):
            assert [event.seq for event in await store.list_events(run_id=f'run-{run}')] == list(range(1, 9))

    async def test_batches_that_touch_the_same_runs_in_different_order_all_succeed(self, store: StepStore) -> None:
        forth = [an_event('run-1'), an_event('run-2'), a_start('run-3')]
        back = [a_start('run-3'), an_event('run-2'), an_event('run-1')]
        await asyncio.gather(*[store.commit(forth if index % 2 else back) for index in range(TASKS)])
        for run_id in ('run-1', 'run-2'):
            assert len(await store.list_events(run_id=run_id)) == TASKS
        assert await store.list_tool_effects(run_id='run-3') == [a_start('run-3')]

    async def test_one_key_from_many_tasks_is_stored_once(self, store: StepStore) -> None:
        batch: list[Record] = [
            an_event(idempotency_key='key'),
            a_snapshot(turns(4), idempotency_key='key'),
            a_start(),
        ]
        await asyncio.gather(*[store.commit(batch) for _ in range(TASKS)])
        assert len(await store.list_events(run_id='run-1')) == 1
        assert len(await store.list_snapshots(run_id='run-1')) == 1
        assert len(await store.list_tool_effects(run_id='run-1')) == 1

    async def test_one_registration_from_many_tasks_is_one_run(self, store: StepStore) -> None:
        await asyncio.gather(*[store.register_run(a_run()) for _ in range(TASKS)])
        assert await store.list_runs() == [a_run()]

    async def test_of_many_registrations_of_one_id_exactly_one_wins(self, store: StepStore) -> None:
        runs = [a_run(registration_id=f'{index}') for index in range(TASKS)]
        outcomes = await _outcomes(store.commit([run, an_event(error=run.registration_id)]) for run in runs)
        winners = [run for run, outcome in zip(runs, outcomes, strict=True) if outcome is None]
        assert len(winners) == 1
        assert {type(outcome) for outcome in outcomes} == {type(None), DuplicateRunError}
        assert await store.list_runs() == winners
        assert [event.error for event in await store.list_events(run_id='run-1')] == [winners[0].registration_id]

    async def test_of_many_holders_that_claim_a_call_exactly_one_wins(self, store: StepStore) -> None:
        claims = [a_start(holder=f'worker-{index}') for index in range(TASKS)]
        outcomes = await _outcomes(store.record_tool_effect(claim) for claim in claims)
        winners = [claim for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
        assert len(winners) == 1
        assert await store.list_tool_effects(run_id='run-1') == winners
        for outcome in outcomes:
            assert outcome is None or (isinstance(outcome, ToolEffectConflictError) and outcome.current == winners[0])

    async def test_of_many_holders_that_take_over_a_call_exactly_one_wins(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        claims = [a_start(attempts=2, holder=f'worker-{index}') for index in range(TASKS)]
        outcomes = await _outcomes(store.record_tool_effect(claim) for claim in claims)
        winners = [claim for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
        assert len(winners) == 1
        assert {type(outcome) for outcome in outcomes} == {type(None), ToolEffectConflictError}
        assert await store.list_tool_effects(run_id='run-1') == winners

    async def test_end_and_take_over_of_one_call_cannot_both_succeed(self, store: StepStore) -> None:
        keys = [f'{index}' for index in range(TASKS)]
        await store.commit([a_start(call_key=key) for key in keys])
        ends = [an_end(call_key=key) for key in keys]
        claims = [a_start(call_key=key, attempts=2, holder='worker-b') for key in keys]
        writes = [write for pair in zip(ends, claims, strict=True) for write in pair]
        outcomes = await _outcomes(store.record_tool_effect(write) for write in writes)
        winners = [write for write, outcome in zip(writes, outcomes, strict=True) if outcome is None]
        assert [winner.call_key for winner in winners] == keys
        assert await store.list_tool_effects(run_id='run-1') == winners

    async def test_annotation_and_end_of_one_call_both_count(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(a_start(effect_summary='charged 3'))
        await asyncio.gather(*[store.record_tool_effect(effect) for effect in (an_end(), a_start(), an_end())])
        assert await store.list_tool_effects(run_id='run-1') == [an_end(effect_summary='charged 3')]

    async def test_parallel_snapshots_of_shared_messages_are_all_whole(self, store: StepStore) -> None:
        forth = turns(12)
        histories = [(forth if index % 2 else forth[::-1])[: 2 + index % 10] for index in range(TASKS)]
        await asyncio.gather(
            *[store.save_snapshot(a_snapshot(history, f'run-{index}')) for index, history in enumerate(histories)]
        )
        for index, history in enumerate(histories):
            assert await store.list_snapshots(run_id=f'run-{index}') == [a_snapshot(history, f'run-{index}')]

    async def test_parallel_extensions_of_one_history_are_all_whole(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot(turns(4), 'base'))
        histories = [[*turns(4), asks(f'fork {index % 4}')] for index in range(TASKS)]
        await asyncio.gather(
            *[
                store.commit([an_extension(history, base_length=4, run_id=f'run-{index}')])
                for index, history in enumerate(histories)
            ]
        )
        for index, history in enumerate(histories):
            assert await store.list_snapshots(run_id=f'run-{index}') == [a_snapshot(history, f'run-{index}')]

    async def test_parallel_saves_are_pruned_to_the_bound(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=2)
        await asyncio.gather(
            *[store.save_snapshot(a_snapshot(turns(index), step_index=index)) for index in range(TASKS)]
        )
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.seq for snapshot in read] == [TASKS - 1, TASKS]
        assert [snapshot.messages for snapshot in read] == [turns(snapshot.step_index) for snapshot in read]

    async def test_reader_never_sees_a_part_of_a_batch(self, store: StepStore) -> None:
        seen: set[int] = set()
        done = asyncio.Event()

        async def read() -> None:
            while not done.is_set():
                events = await store.list_events(run_id='run-1')
                seen.add(len(events) % 3)
                snapshot = await store.latest_snapshot(run_id='run-1')
                if snapshot is not None:
                    assert snapshot.messages == turns(snapshot.step_index)
                await asyncio.sleep(0)

        async def write() -> None:
            for index in range(TASKS):
                history = turns(index + 1)
                await store.commit(
                    [an_event(), an_extension(history, base_length=index, step_index=index + 1), an_event(), an_event()]
                )
            done.set()

        await asyncio.gather(read(), read(), write())
        assert seen == {0}
        assert len(await store.list_events(run_id='run-1')) == 3 * TASKS

    async def test_cancelled_commits_are_whole_or_absent_and_the_store_goes_on(self, store: StepStore) -> None:
        for ticks in range(TASKS):
            run_id = f'run-{ticks}'
            history = [asks(run_id), says('yes')]
            task = asyncio.ensure_future(
                store.commit([an_event(run_id), a_snapshot(history, run_id), an_event(run_id)])
            )
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # Whatever became of it, the store takes the next write, and the run has no half of the batch.
            await store.append_event(an_event(run_id, error='after'))
            errors = [event.error for event in await store.list_events(run_id=run_id)]
            assert sorted(error or '' for error in errors) in (['after'], ['', '', 'after'])
            saved = await store.list_snapshots(run_id=run_id)
            assert [snapshot.messages for snapshot in saved] in ([], [history])
        await asyncio.gather(*[store.append_event(an_event('last')) for _ in range(2 * TASKS)])
        assert len(await store.list_events(run_id='last')) == 2 * TASKS

    async def test_refused_batches_do_not_hold_up_the_others(self, store: StepStore) -> None:
        await store.record_tool_effect(an_end())
        refused = a_start(attempts=2)
        outcomes = await _outcomes(
            store.commit([an_event(), refused] if index % 2 else [an_event()]) for index in range(2 * TASKS)
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ToolEffectConflictError] * TASKS
        assert [event.seq for event in await store.list_events(run_id='run-1')] == list(range(2, TASKS + 2))
        assert await store.list_tool_effects(run_id='run-1') == [replace(an_end(), seq=1)]
