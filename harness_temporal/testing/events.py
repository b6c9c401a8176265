"""Events: appended, never changed, in the order in which they were written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from harness_temporal.errors import NotStorableError
from harness_temporal.records import EventKind, StepEvent
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import LONG_KEY, NOON, SEOUL, a_snapshot, an_event, turns


class EventsConformance(StoreTests):
    """Appending and reading events."""

    async def test_event_reads_back_with_every_field(self, store: StepStore) -> None:
        event = StepEvent(
            run_id='run-1',
            kind='tool_call_failed',
            step_index=7,
            timestamp=NOON.astimezone(SEOUL),
            conversation_id='conversation',
            parent_run_id='parent',
            agent_name='librarian',
            tool_call_id='call-1',
            tool_name='search',
            error='ValueError: no',
            metadata={'a': '1', '': ''},
            idempotency_key='key',
        )
        await store.append_event(event)
        (read,) = await store.list_events(run_id='run-1')
        assert read == event
        assert read.timestamp.utcoffset() == timedelta(0)
        assert isinstance(read.seq, int)

    async def test_event_reads_back_with_nothing_optional(self, store: StepStore) -> None:
        event = StepEvent(run_id='run-1', kind='run_started', step_index=0, timestamp=NOON)
        await store.append_event(event)
        assert await store.list_events(run_id='run-1') == [event]

    async def test_empty_text_of_an_event_is_not_none(self, store: StepStore) -> None:
        event = an_event(
            conversation_id='',
            parent_run_id='',
            agent_name='',
            tool_call_id='',
            tool_name='',
            error='',
            idempotency_key='',
        )
        await store.append_event(event)
        assert await store.list_events(run_id='run-1') == [event]

    @pytest.mark.parametrize('kind', get_args(EventKind))
    async def test_every_kind_of_event_is_kept(self, store: StepStore, kind: EventKind) -> None:
        await store.append_event(an_event(kind=kind))
        assert [event.kind for event in await store.list_events(run_id='run-1')] == [kind]

    @pytest.mark.parametrize('metadata', [{"a') OR 1=1 --": '1'}, {'$set': '1', 'x.y': '2'}, {'kind': 'binary'}])
    async def test_event_metadata_may_have_any_key(self, store: StepStore, metadata: dict[str, str]) -> None:
        await store.append_event(an_event(metadata=metadata))
        (read,) = await store.list_events(run_id='run-1')
        assert read.metadata == metadata

    @pytest.mark.parametrize('metadata', [{'a': 1}, {1: 'a'}, {'a': None}, {'a': float('nan')}, {'a': {'b': 'c'}}])
    async def test_metadata_that_is_not_text_is_refused(self, store: StepStore, metadata: Any) -> None:
        with pytest.raises(NotStorableError):
            await store.commit([an_event(), an_event(metadata=metadata)])
        assert await store.list_events(run_id='run-1') == []

    # --- order ---

    async def test_events_are_in_order_of_writing_though_the_clock_stands_still(self, store: StepStore) -> None:
        for index in range(12):
            await store.append_event(an_event(step_index=index))
        assert [event.step_index for event in await store.list_events(run_id='run-1')] == list(range(12))

    async def test_events_are_in_order_of_writing_though_the_clock_goes_back(self, store: StepStore) -> None:
        for index in range(12):
            await store.append_event(an_event(step_index=index, timestamp=NOON - timedelta(hours=index)))
        assert [event.step_index for event in await store.list_events(run_id='run-1')] == list(range(12))

    async def test_numbers_rise_within_a_run_and_are_the_stores_own(self, store: StepStore) -> None:
        for seq in (900, 5, None):
            await store.append_event(an_event(seq=seq))
        numbers = [event.seq for event in await store.list_events(run_id='run-1')]
        assert numbers == [1, 2, 3]

    async def test_each_run_has_numbers_of_its_own(self, store: StepStore) -> None:
        for run_id in ('run-1', 'run-2', 'run-1', 'run-2'):
            await store.append_event(an_event(run_id))
        for run_id in ('run-1', 'run-2'):
            assert [event.seq for event in await store.list_events(run_id=run_id)] == [1, 2]

    async def test_event_that_was_dropped_takes_no_number(self, store: StepStore) -> None:
        for key in ('a', 'a', 'b'):
            await store.append_event(an_event(idempotency_key=key))
        assert [event.seq for event in await store.list_events(run_id='run-1')] == [1, 2]

    # --- keys ---

    async def test_event_without_a_key_is_appended_each_time(self, store: StepStore) -> None:
        for _ in range(3):
            await store.append_event(an_event())
        assert len(await store.list_events(run_id='run-1')) == 3

    @pytest.mark.parametrize(
        'key',
        ['key', '', 'a\x00b', '\ud800', "' OR 1=1", LONG_KEY],
        ids=['plain', 'empty', 'NUL', 'lone surrogate', 'quote', 'long'],
    )
    async def test_second_event_with_a_key_is_dropped(self, store: StepStore, key: str) -> None:
        await store.append_event(an_event(idempotency_key=key, error='first'))
        await store.append_event(an_event(idempotency_key=key, error='second', kind='run_failed'))
        read = await store.list_events(run_id='run-1')
        assert [(event.error, event.idempotency_key) for event in read] == [('first', key)]

    async def test_second_event_with_a_key_in_one_batch_is_dropped(self, store: StepStore) -> None:
        await store.commit(
            [
                an_event(idempotency_key='key', error='first'),
                an_event(),
                an_event(idempotency_key='key', error='second'),
            ]
        )
        assert [event.error for event in await store.list_events(run_id='run-1')] == ['first', None]

    async def test_keys_that_look_alike_are_kept_apart(self, store: StepStore) -> None:
        keys = ['key', 'Key', 'key ', ' key', 'key\x00', 'k\u0065\u0301y', 'k\u00e9y', '']
        for key in keys:
            await store.append_event(an_event(idempotency_key=key))
        assert [event.idempotency_key for event in await store.list_events(run_id='run-1')] == keys

    async def test_key_belongs_to_its_run(self, store: StepStore) -> None:
        for run_id in ('run-1', 'run-2'):
            await store.append_event(an_event(run_id, idempotency_key='key'))
            assert len(await store.list_events(run_id=run_id)) == 1

    async def test_event_and_snapshot_do_not_share_keys(self, store: StepStore) -> None:
        await store.append_event(an_event(idempotency_key='key'))
        await store.save_snapshot(a_snapshot(turns(2), idempotency_key='key'))
        assert len(await store.list_events(run_id='run-1')) == 1
        assert len(await store.list_snapshots(run_id='run-1')) == 1

    # --- reading in pages ---

    async def test_events_are_read_after_a_number_and_up_to_a_limit(self, store: StepStore) -> None:
        for index in range(1, 6):
            await store.append_event(an_event(step_index=index))

        async def found(after: int = 0, limit: int | None = None) -> list[int]:
            return [event.step_index for event in await store.list_events(run_id='run-1', after=after, limit=limit)]

        assert await found(after=2) == [3, 4, 5]
        assert await found(limit=2) == [1, 2]
        assert await found(after=2, limit=2) == [3, 4]
        assert await found(after=4, limit=2) == [5]
        assert await found(after=5) == []
        assert await found(after=99, limit=2) == []
        assert await found(limit=0) == []

    async def test_pages_follow_each_other_though_other_records_are_between(self, store: StepStore) -> None:
        for index in range(9):
            await store.append_event(an_event(step_index=index))
            await store.save_snapshot(a_snapshot(turns(1 + index % 2)))
        read: list[StepEvent] = []
        while page := await store.list_events(run_id='run-1', after=(read[-1].seq or 0) if read else 0, limit=2):
            read += page
        assert [event.step_index for event in read] == list(range(9))

    async def test_events_of_other_runs_are_not_read(self, store: StepStore) -> None:
        await store.commit([an_event('run-1', error='mine'), an_event('run-2', error='theirs')])
        assert [event.error for event in await store.list_events(run_id='run-1')] == ['mine']
        assert await store.list_events(run_id='run-3') == []

    async def test_event_changed_after_saving_or_reading_is_not_changed_in_the_store(self, store: StepStore) -> None:
        event = an_event(metadata={'a': '1'})
        await store.append_event(event)
        (read,) = await store.list_events(run_id='run-1')
        for shared in (event, read):
            assert isinstance(shared.metadata, dict)
            shared.metadata['a'] = 'changed'
        (read,) = await store.list_events(run_id='run-1')
        assert read.metadata == {'a': '1'}
