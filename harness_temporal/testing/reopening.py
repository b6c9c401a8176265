"""A persistent store: what was written is there for a second store on the same place, and for those beside it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from harness_temporal.errors import DuplicateRunError, HarnessError, HistoryMissingError, ToolEffectConflictError
from harness_temporal.records import Record
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import OpenStore, StoreTests
from harness_temporal.testing.samples import (
    LIMA,
    MESSAGES,
    NOON,
    SEOUL,
    TEXTS,
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    asks,
    turns,
)

STORES = 8


class ReopeningConformance(StoreTests):
    """Two stores on one place, after each other and at once. Skipped for a store that declares no persistence."""

    @pytest.fixture
    def reopen(self, open_store: OpenStore) -> OpenStore:
        """Open one more store on the place of the test."""
        if not self.persistent:
            pytest.skip('this store declares that it is not persistent')
        return open_store

    async def test_everything_is_there_after_reopening(self, reopen: OpenStore) -> None:
        first = await reopen()
        events = [an_event(error=text, metadata={text: text}) for text in TEXTS.values()]
        history = list(MESSAGES.values())
        await first.commit(
            [
                a_run(metadata={'a': '1'}),
                *events,
                a_snapshot(history),
                a_snapshot(turns(2), state='interrupted'),
                an_end(value=b'\x00\xff'),
                a_start(call_key='key-2'),
                a_response(body=b'\x00\xff'),
            ]
        )
        await first.aclose()
        second = await reopen()
        assert await second.get_run(run_id='run-1') == a_run(metadata={'a': '1'})
        assert await second.list_runs() == [a_run(metadata={'a': '1'})]
        assert await second.list_events(run_id='run-1') == events
        assert await second.list_snapshots(run_id='run-1') == [a_snapshot(history)]
        assert await second.latest_snapshot(run_id='run-1', include_interrupted=True) == a_snapshot(
            turns(2), state='interrupted'
        )
        assert await second.list_tool_effects(run_id='run-1') == [an_end(value=b'\x00\xff'), a_start(call_key='key-2')]
        assert await second.list_unresolved_tool_effects(run_id='run-1') == [a_start(call_key='key-2')]
        assert await second.get_model_response(run_id='run-1', key='request-1') == a_response(body=b'\x00\xff')

    async def test_order_goes_on_after_reopening_though_the_clock_goes_back(self, reopen: OpenStore) -> None:
        for index in range(4):
            store = await reopen()
            timestamp = NOON - timedelta(hours=index)
            await store.commit(
                [
                    a_start(call_key=f'{index}', started_at=timestamp),
                    an_event(step_index=index, timestamp=timestamp),
                    a_snapshot([asks(f'{index}')], timestamp=timestamp),
                ]
            )
            await store.aclose()
        store = await reopen()
        events = await store.list_events(run_id='run-1')
        snapshots = await store.list_snapshots(run_id='run-1')
        effects = await store.list_tool_effects(run_id='run-1')
        assert [event.step_index for event in events] == [0, 1, 2, 3]
        assert [snapshot.messages for snapshot in snapshots] == [[asks(f'{index}')] for index in range(4)]
        assert [effect.call_key for effect in effects] == ['0', '1', '2', '3']
        assert sorted(record.seq or 0 for record in (*events, *snapshots, *effects)) == list(range(1, 13))
        newest = await store.latest_snapshot(run_id='run-1')
        assert newest is not None
        assert newest.messages == [asks('3')]

    async def test_runs_keep_their_order_after_reopening(self, reopen: OpenStore) -> None:
        names = ['tied b', 'late', 'tied a', 'early', 'tied c']
        for name in names:
            store = await reopen()
            offset = {'late': timedelta(hours=1), 'early': timedelta(hours=-1)}.get(name, timedelta(0))
            zone = {'late': LIMA, 'early': SEOUL}.get(name, NOON.tzinfo)
            run_id = name.replace(' ', '-')
            await store.register_run(a_run(run_id, started_at=(NOON + offset).astimezone(zone)))
            await store.aclose()
        store = await reopen()
        assert [run.run_id for run in await store.list_runs()] == ['early', 'tied-b', 'tied-a', 'tied-c', 'late']
        assert [run.run_id for run in await store.list_runs(limit=2)] == ['tied-c', 'late']

    async def test_keys_still_suppress_after_reopening(self, reopen: OpenStore) -> None:
        for _ in range(2):
            store = await reopen(max_snapshots_per_run=1)
            await store.append_event(an_event(idempotency_key='key'))
            for key in ('a', 'b'):
                await store.save_snapshot(a_snapshot([asks(key)], idempotency_key=key))
            await store.aclose()
        store = await reopen()
        assert len(await store.list_events(run_id='run-1')) == 1
        assert await store.list_snapshots(run_id='run-1') == [a_snapshot([asks('b')], idempotency_key='b')]

    async def test_rules_still_hold_after_reopening(self, reopen: OpenStore) -> None:
        first = await reopen()
        await first.commit([a_run(), an_end(), a_snapshot(turns(4))])
        await first.aclose()
        second = await reopen()
        await second.register_run(a_run())
        refused: list[tuple[Record, type[HarnessError]]] = [
            (a_run(registration_id='another'), DuplicateRunError),
            (a_start(attempts=2), ToolEffectConflictError),
            (an_extension(turns(9), base_length=8), HistoryMissingError),
        ]
        for record, error in refused:
            with pytest.raises(error):
                await second.commit([record])
        await second.commit([an_extension(turns(6), base_length=4)])
        read = await second.latest_snapshot(run_id='run-1')
        assert read is not None
        assert read.messages == turns(6)

    async def test_smaller_bound_prunes_what_was_kept_before(self, reopen: OpenStore) -> None:
        first = await reopen()
        for index in range(5):
            await first.save_snapshot(a_snapshot(turns(index), step_index=index))
        second = await reopen(max_snapshots_per_run=2)
        assert len(await second.list_snapshots(run_id='run-1')) == 5
        await second.save_snapshot(a_snapshot(turns(5), step_index=5))
        assert [snapshot.step_index for snapshot in await second.list_snapshots(run_id='run-1')] == [4, 5]
        assert [snapshot.step_index for snapshot in await first.list_snapshots(run_id='run-1')] == [4, 5]

    async def test_store_sees_at_once_what_another_wrote(self, reopen: OpenStore) -> None:
        writer, reader = await reopen(), await reopen()
        assert await reader.list_runs() == []
        for index in range(3):
            await writer.commit([a_run(f'run-{index}'), an_event('run-0', step_index=index)])
            assert len(await reader.list_runs()) == index + 1
            assert [event.step_index for event in await reader.list_events(run_id='run-0')] == list(range(index + 1))

    async def test_ledger_holds_against_what_another_store_wrote(self, reopen: OpenStore) -> None:
        one, other = await reopen(), await reopen()
        await one.record_tool_effect(a_start(effect_summary='charged 3'))
        taken = a_start(attempts=2, holder='worker-b', effect_summary='charged 3')
        await other.record_tool_effect(a_start(attempts=2, holder='worker-b'))
        for late in (an_end(), a_start()):
            with pytest.raises(ToolEffectConflictError) as caught:
                await one.record_tool_effect(late)
            assert caught.value.current == taken
        await one.record_tool_effect(an_end(attempts=2, holder='worker-b'))
        await other.record_tool_effect(a_start(attempts=2, holder='worker-b'))
        ended = an_end(attempts=2, holder='worker-b', effect_summary='charged 3')
        for store in (one, other):
            assert await store.list_tool_effects(run_id='run-1') == [ended]
            assert await store.list_unresolved_tool_effects(run_id='run-1') == []

    async def test_stores_opened_at_once_on_a_new_place_all_work(self, reopen: OpenStore) -> None:
        async def use(index: int) -> StepStore:
            store = await reopen()
            await store.commit([a_run(f'run-{index}'), an_event('shared', step_index=index)])
            return store

        stores = await asyncio.gather(*[use(index) for index in range(STORES)])
        for store in stores:
            assert sorted(run.run_id for run in await store.list_runs()) == [f'run-{index}' for index in range(STORES)]
            events = await store.list_events(run_id='shared')
            assert [event.seq for event in events] == list(range(1, STORES + 1))

    async def test_stores_side_by_side_number_one_run_without_gaps(self, reopen: OpenStore) -> None:
        stores = [await reopen() for _ in range(3)]
        await asyncio.gather(
            *[stores[index % 3].append_event(an_event(step_index=index)) for index in range(30)],
            *[stores[index % 3].append_event(an_event(idempotency_key='once')) for index in range(12)],
        )
        for store in stores:
            events = await store.list_events(run_id='run-1')
            assert [event.seq for event in events] == list(range(1, 32))

    async def test_one_of_several_stores_wins_a_claim_and_a_registration(self, reopen: OpenStore) -> None:
        stores = [await reopen() for _ in range(3)]
        for round_ in range(5):
            key, run_id = f'key-{round_}', f'run-{round_}'
            claims = await asyncio.gather(
                *[
                    store.record_tool_effect(a_start('claimed', call_key=key, holder=f'{index}'))
                    for index, store in enumerate(stores)
                ],
                return_exceptions=True,
            )
            assert sorted(type(claim).__name__ for claim in claims) == ['NoneType', *['ToolEffectConflictError'] * 2]
            registrations = await asyncio.gather(
                *[store.register_run(a_run(run_id, registration_id=f'{index}')) for index, store in enumerate(stores)],
                return_exceptions=True,
            )
            assert sorted(type(outcome).__name__ for outcome in registrations) == [
                *['DuplicateRunError'] * 2,
                'NoneType',
            ]
