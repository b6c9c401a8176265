"""Snapshots: a history read back is the history that was saved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart

from harness_temporal.errors import HistoryMissingError, NotStorableError
from harness_temporal.history import encode_history, link
from harness_temporal.records import ContinuableSnapshot, EncodedHistory, EncodedSnapshot, SnapshotState
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import (
    LONG_KEY,
    MESSAGES,
    NOON,
    SEOUL,
    a_run,
    a_snapshot,
    a_start,
    an_event,
    an_extension,
    asks,
    calls,
    returns,
    says,
    turns,
)


async def _latest(store: StepStore, run_id: str = 'run-1') -> list[ModelMessage]:
    snapshot = await store.latest_snapshot(run_id=run_id, include_interrupted=True)
    assert snapshot is not None
    return snapshot.messages


class SnapshotsConformance(StoreTests):
    """Saving and reading snapshots."""

    async def test_snapshot_reads_back_with_every_field(self, store: StepStore) -> None:
        snapshot = ContinuableSnapshot(
            run_id='run-1',
            step_index=7,
            messages=turns(3),
            conversation_id='conversation',
            parent_run_id='parent',
            agent_name='librarian',
            timestamp=NOON.astimezone(SEOUL),
            state='complete',
            idempotency_key='key',
        )
        await store.save_snapshot(snapshot)
        read = await store.latest_snapshot(run_id='run-1')
        assert read is not None
        assert read == snapshot
        assert read.timestamp.utcoffset() == timedelta(0)
        assert isinstance(read.seq, int)
        assert await store.list_snapshots(run_id='run-1') == [snapshot]

    async def test_snapshot_reads_back_with_nothing_optional(self, store: StepStore) -> None:
        snapshot = ContinuableSnapshot(run_id='run-1', step_index=0, messages=turns(2), timestamp=NOON)
        await store.save_snapshot(snapshot)
        assert await store.latest_snapshot(run_id='run-1') == snapshot

    async def test_empty_text_of_a_snapshot_is_not_none(self, store: StepStore) -> None:
        snapshot = a_snapshot(turns(2), conversation_id='', parent_run_id='', agent_name='', idempotency_key='')
        await store.save_snapshot(snapshot)
        assert await store.list_snapshots(run_id='run-1') == [snapshot]

    @pytest.mark.parametrize('message', MESSAGES.values(), ids=MESSAGES)
    async def test_every_kind_of_message_reads_back_equal(self, store: StepStore, message: ModelMessage) -> None:
        await store.save_snapshot(a_snapshot([asks('before'), message, says('after')]))
        assert await _latest(store) == [asks('before'), message, says('after')]

    async def test_empty_history_reads_back_empty(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot([]))
        assert await _latest(store) == []

    async def test_long_history_reads_back_in_order(self, store: StepStore) -> None:
        history = turns(500)
        await store.save_snapshot(a_snapshot(history))
        assert await _latest(store) == history

    async def test_history_that_repeats_a_message_reads_back_with_all_of_them(self, store: StepStore) -> None:
        history = [asks('again'), says('no'), asks('again'), says('no'), asks('again'), asks('again')]
        await store.save_snapshot(a_snapshot(history))
        assert await _latest(store) == history

    async def test_histories_that_share_messages_stay_apart(self, store: StepStore) -> None:
        histories: dict[str, list[ModelMessage]] = {
            'grown': turns(8),
            'forked': [*turns(4), asks('elsewhere')],
            'trimmed': turns(8)[4:],
            'turned': turns(8)[::-1],
            'edited': [asks('edited'), *turns(8)[1:]],
            'shorter': turns(2),
        }
        for name, history in histories.items():
            await store.save_snapshot(a_snapshot(history, name))
        for name, history in histories.items():
            assert await _latest(store, name) == history

    async def test_one_run_may_replace_its_history(self, store: StepStore) -> None:
        histories = [turns(6), turns(6)[3:], [asks('summary'), *turns(6)[4:]], [], turns(1)]
        for history in histories:
            await store.save_snapshot(a_snapshot(history))
        assert [snapshot.messages for snapshot in await store.list_snapshots(run_id='run-1')] == histories

    async def test_message_that_would_not_read_back_is_refused_and_nothing_written(self, store: StepStore) -> None:
        bad = a_snapshot([asks('x'), returns({'handle': object()})])
        with pytest.raises(NotStorableError) as caught:
            await store.commit([a_run(), an_event(), a_snapshot(turns(2)), a_start(), bad])
        assert "'tool'" in caught.value.part
        assert await store.list_runs() == []
        assert await store.list_events(run_id='run-1') == []
        assert await store.list_snapshots(run_id='run-1', include_interrupted=True) == []
        assert await store.list_tool_effects(run_id='run-1') == []

    # --- which snapshot is read ---

    async def test_unknown_run_has_no_snapshot(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot(turns(2)))
        assert await store.latest_snapshot(run_id='run-2') is None
        assert await store.latest_snapshot(run_id='run-2', include_interrupted=True) is None
        assert await store.list_snapshots(run_id='run-2', include_interrupted=True) == []

    async def test_interrupted_snapshots_are_read_only_on_request(self, store: StepStore) -> None:
        states: list[SnapshotState] = ['complete', 'interrupted', 'complete', 'interrupted', 'interrupted']
        for index, state in enumerate(states):
            await store.save_snapshot(a_snapshot(turns(index + 1), step_index=index, state=state))

        async def found(*, limit: int | None = None, include_interrupted: bool = False) -> list[int]:
            read = await store.list_snapshots(run_id='run-1', include_interrupted=include_interrupted, limit=limit)
            return [snapshot.step_index for snapshot in read]

        newest = await store.latest_snapshot(run_id='run-1')
        newest_of_all = await store.latest_snapshot(run_id='run-1', include_interrupted=True)
        assert newest is not None
        assert newest_of_all is not None
        assert (newest.step_index, newest.state, newest.messages) == (2, 'complete', turns(3))
        assert (newest_of_all.step_index, newest_of_all.state, newest_of_all.messages) == (4, 'interrupted', turns(5))
        assert await found() == [0, 2]
        assert await found(include_interrupted=True) == [0, 1, 2, 3, 4]
        assert await found(limit=1) == [2]
        assert await found(limit=3, include_interrupted=True) == [2, 3, 4]
        assert await found(limit=9) == [0, 2]
        assert await found(limit=0, include_interrupted=True) == []

    async def test_run_with_only_an_interrupted_snapshot_has_nothing_to_continue_from(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot([asks('x'), calls({})], state='interrupted'))
        assert await store.latest_snapshot(run_id='run-1') is None
        assert await store.list_snapshots(run_id='run-1') == []
        assert await _latest(store) == [asks('x'), calls({})]

    async def test_newest_is_what_was_written_last_though_the_clock_goes_back(self, store: StepStore) -> None:
        for name, timestamp in [('a', NOON), ('b', NOON), ('c', NOON), ('d', NOON - timedelta(hours=1))]:
            await store.save_snapshot(a_snapshot([asks(name)], timestamp=timestamp))
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.messages for snapshot in read] == [[asks('a')], [asks('b')], [asks('c')], [asks('d')]]
        assert await _latest(store) == [asks('d')]

    async def test_snapshots_of_one_step_keep_the_order_of_writing(self, store: StepStore) -> None:
        for index in (3, 1, 2):
            key = f'snapshot:{index}:1:complete'
            await store.save_snapshot(a_snapshot(turns(index), step_index=1, idempotency_key=key))
        assert [len(snapshot.messages) for snapshot in await store.list_snapshots(run_id='run-1')] == [3, 1, 2]
        assert await _latest(store) == turns(2)

    async def test_number_of_a_snapshot_is_the_stores_own(self, store: StepStore) -> None:
        for seq in (900, 5, None):
            await store.save_snapshot(a_snapshot(turns(1), seq=seq))
        assert [snapshot.seq for snapshot in await store.list_snapshots(run_id='run-1')] == [1, 2, 3]

    # --- keys ---

    async def test_snapshot_without_a_key_is_saved_each_time(self, store: StepStore) -> None:
        for _ in range(3):
            await store.save_snapshot(a_snapshot(turns(2)))
        assert [snapshot.messages for snapshot in await store.list_snapshots(run_id='run-1')] == [turns(2)] * 3

    @pytest.mark.parametrize(
        'key', ['key', '', 'a\x00b', '\ud800', LONG_KEY], ids=['plain', 'empty', 'NUL', 'lone surrogate', 'long']
    )
    async def test_second_snapshot_with_a_key_is_dropped(self, store: StepStore, key: str) -> None:
        await store.save_snapshot(a_snapshot(turns(2), idempotency_key=key))
        await store.save_snapshot(a_snapshot(turns(4), idempotency_key=key, state='interrupted'))
        await store.commit(
            [a_snapshot(turns(6), idempotency_key='other'), a_snapshot(turns(8), idempotency_key='other')]
        )
        read = await store.list_snapshots(run_id='run-1', include_interrupted=True)
        assert [len(snapshot.messages) for snapshot in read] == [2, 6]

    async def test_key_of_a_snapshot_belongs_to_its_run(self, store: StepStore) -> None:
        for run_id in ('run-1', 'run-2'):
            await store.save_snapshot(a_snapshot(turns(2), run_id, idempotency_key='key'))
            assert len(await store.list_snapshots(run_id=run_id)) == 1

    # --- encoded snapshots ---

    async def test_encoded_snapshot_reads_back_as_if_it_was_whole(self, store: StepStore) -> None:
        await store.commit([an_extension(turns(4), base_length=0, step_index=3, agent_name='librarian')])
        assert await store.list_snapshots(run_id='run-1') == [
            a_snapshot(turns(4), step_index=3, agent_name='librarian')
        ]

    async def test_encoded_snapshot_of_an_empty_history_reads_back_empty(self, store: StepStore) -> None:
        await store.commit([EncodedSnapshot(snapshot=a_snapshot(), history=EncodedHistory(None, 0, ()))])
        assert await _latest(store) == []

    @pytest.mark.parametrize('base_length', [1, 4, 6])
    async def test_encoded_snapshot_extends_a_history_that_is_there(self, store: StepStore, base_length: int) -> None:
        await store.save_snapshot(a_snapshot(turns(6)))
        await store.commit([an_extension(turns(6), base_length=base_length, step_index=2)])
        await store.commit([an_extension([*turns(base_length), asks('new')], base_length=base_length, step_index=3)])
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.messages for snapshot in read] == [turns(6), turns(6), [*turns(base_length), asks('new')]]

    async def test_encoded_snapshot_may_extend_a_history_of_another_run(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot(turns(4)))
        await store.commit([an_extension(turns(6), base_length=4, run_id='fork')])
        await store.save_snapshot(a_snapshot([*turns(4), asks('original')]))
        assert await _latest(store, 'fork') == turns(6)
        assert await _latest(store, 'run-1') == [*turns(4), asks('original')]

    async def test_encoded_snapshots_may_extend_each_other_one_message_at_a_time(self, store: StepStore) -> None:
        history = turns(30)
        for length in range(1, 31):
            await store.commit([an_extension(history[:length], base_length=length - 1, step_index=length)])
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.messages for snapshot in read] == [history[:length] for length in range(1, 31)]

    async def test_encoded_snapshot_may_extend_one_of_its_own_batch(self, store: StepStore) -> None:
        await store.commit([a_snapshot(turns(2)), an_extension(turns(4), base_length=2)])
        assert [snapshot.messages for snapshot in await store.list_snapshots(run_id='run-1')] == [turns(2), turns(4)]

    async def test_unknown_base_is_refused_and_nothing_written(self, store: StepStore) -> None:
        orphan = an_extension(turns(6), base_length=4)
        with pytest.raises(HistoryMissingError):
            await store.commit([a_run(), an_event(), a_start(), a_snapshot([asks('other')]), orphan])
        assert await store.list_runs() == []
        assert await store.list_events(run_id='run-1') == []
        assert await store.list_tool_effects(run_id='run-1') == []
        assert await store.list_snapshots(run_id='run-1', include_interrupted=True) == []

    async def test_dropped_snapshot_needs_no_history(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot(turns(2), idempotency_key='key'))
        await store.commit([an_event(), an_extension(turns(9), base_length=8, idempotency_key='key')])
        assert len(await store.list_events(run_id='run-1')) == 1
        assert await store.list_snapshots(run_id='run-1') == [a_snapshot(turns(2), idempotency_key='key')]

    async def test_history_of_a_refused_batch_cannot_be_extended(self, store: StepStore) -> None:
        with pytest.raises(HistoryMissingError):
            await store.commit([a_snapshot(turns(2)), an_extension(turns(6), base_length=4)])
        for base_length in (2, 6):
            with pytest.raises(HistoryMissingError):
                await store.commit([an_extension(turns(8), base_length=base_length)])

    async def test_message_is_no_history(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot(turns(2)))
        digest = encode_history(turns(1)).links[0].message.digest
        with pytest.raises(HistoryMissingError):
            await store.commit([EncodedSnapshot(snapshot=a_snapshot(), history=link(digest, 1, []))])

    # --- nothing is shared with the caller ---

    async def test_history_changed_after_saving_is_not_changed_in_the_store(self, store: StepStore) -> None:
        parts: list[TextPart] = [TextPart('said')]
        result = {'rows': [1]}
        history: list[ModelMessage] = [asks('x'), ModelResponse(parts=parts, timestamp=NOON), returns(result)]
        await store.save_snapshot(a_snapshot(history))
        kept = ContinuableSnapshot(run_id='run-2', step_index=1, messages=history, timestamp=NOON)
        await store.save_snapshot(kept)
        _spoil(history)
        result['rows'].append(2)
        parts.append(TextPart('and more'))
        expected = [asks('x'), says('said'), returns({'rows': [1]})]
        assert await _latest(store, 'run-1') == expected
        assert await _latest(store, 'run-2') == expected

    async def test_history_changed_after_reading_is_not_changed_in_the_store(self, store: StepStore) -> None:
        expected = [asks('x'), calls({'rows': [1]}), returns({'rows': [1]})]
        await store.save_snapshot(a_snapshot([asks('x'), calls({'rows': [1]}), returns({'rows': [1]})]))
        for _ in range(2):
            read = await _latest(store)
            assert read == expected
            _spoil(read)
        (listed,) = await store.list_snapshots(run_id='run-1')
        _spoil(listed.messages)
        assert await _latest(store) == expected

    async def test_two_reads_of_a_repeated_message_give_two_objects(self, store: StepStore) -> None:
        await store.save_snapshot(a_snapshot([asks('again'), asks('again')]))
        first, second = await _latest(store)
        assert first is not second


def _spoil(history: list[ModelMessage]) -> None:
    for message in history:
        _spoil_parts(message)
    history.append(asks('more'))


def _spoil_parts(message: ModelMessage) -> None:
    for part in message.parts:
        content: Any = getattr(part, 'content', None)
        if isinstance(content, dict):
            content['spoiled'] = True
        elif isinstance(part, TextPart):
            part.content = 'spoiled'
    if isinstance(message, ModelRequest):
        message.instructions = 'spoiled'
    parts: Sequence[object] = message.parts
    assert isinstance(parts, list)
    parts.clear()
