"""Which snapshots are kept: the newest N, the newest of all, and the newest complete one."""

from __future__ import annotations

import pytest

from harness_temporal.errors import ConfigurationError
from harness_temporal.records import SnapshotState
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import OpenStore, StoreTests
from harness_temporal.testing.samples import a_snapshot, an_event, an_extension, turns


async def _kept(store: StepStore, run_id: str = 'run-1') -> list[int]:
    read = await store.list_snapshots(run_id=run_id, include_interrupted=True)
    assert [snapshot.messages for snapshot in read] == [turns(snapshot.step_index) for snapshot in read]
    return [snapshot.step_index for snapshot in read]


class RetentionConformance(StoreTests):
    """Pruning of snapshots."""

    async def test_without_a_bound_every_snapshot_is_kept(self, store: StepStore) -> None:
        for index in range(30):
            await store.save_snapshot(a_snapshot(turns(index), step_index=index))
        assert await _kept(store) == list(range(30))

    @pytest.mark.parametrize('bound', [0, -1])
    async def test_bound_below_one_is_refused(self, open_store: OpenStore, bound: int) -> None:
        with pytest.raises(ConfigurationError):
            await open_store(max_snapshots_per_run=bound)

    @pytest.mark.parametrize(
        ('bound', 'states', 'kept'),
        [
            (1, 'c', [0]),
            (1, 'ccc', [2]),
            (2, 'ccc', [1, 2]),
            (3, 'ccc', [0, 1, 2]),
            (9, 'ccc', [0, 1, 2]),
            (1, 'i', [0]),
            (1, 'iii', [2]),
            (2, 'iii', [1, 2]),
            (1, 'ci', [0, 1]),
            (1, 'cii', [0, 2]),
            (2, 'ciiii', [0, 3, 4]),
            (2, 'cciiii', [1, 4, 5]),
            (2, 'cicii', [2, 3, 4]),
            (1, 'ciiic', [4]),
            (2, 'ciiic', [3, 4]),
            (2, 'iciic', [3, 4]),
            (3, 'ciici', [2, 3, 4]),
        ],
    )
    async def test_newest_and_newest_complete_are_kept(
        self, open_store: OpenStore, bound: int, states: str, kept: list[int]
    ) -> None:
        store = await open_store(max_snapshots_per_run=bound)
        for index, letter in enumerate(states):
            state: SnapshotState = 'complete' if letter == 'c' else 'interrupted'
            await store.save_snapshot(a_snapshot(turns(index), step_index=index, state=state))
        assert await _kept(store) == kept
        complete = [index for index in kept if states[index] == 'c']
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.step_index for snapshot in read] == complete
        newest = await store.latest_snapshot(run_id='run-1', include_interrupted=True)
        assert newest is not None
        assert newest.step_index == kept[-1]
        continuable = await store.latest_snapshot(run_id='run-1')
        assert (continuable.step_index if continuable else None) == (complete[-1] if complete else None)

    async def test_snapshots_of_one_batch_are_pruned_like_others(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=2)
        await store.commit([a_snapshot(turns(index), step_index=index) for index in range(5)])
        assert await _kept(store) == [3, 4]

    async def test_each_run_is_pruned_by_itself(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=1)
        for index in range(3):
            for run_id in ('run-1', 'run-2'):
                await store.save_snapshot(a_snapshot(turns(index), run_id, step_index=index))
        await store.save_snapshot(a_snapshot(turns(9), 'run-3', step_index=9))
        assert [await _kept(store, f'run-{index}') for index in (1, 2, 3)] == [[2], [2], [9]]

    async def test_key_of_a_pruned_snapshot_still_suppresses(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=1)
        for index in range(3):
            await store.save_snapshot(a_snapshot(turns(index), step_index=index, idempotency_key=f'{index}'))
        for index in range(3):
            await store.save_snapshot(a_snapshot(turns(index), step_index=index, idempotency_key=f'{index}'))
        assert await _kept(store) == [2]

    async def test_dropped_snapshot_prunes_nothing(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=2)
        for key in ('a', 'b', 'a', 'b', 'a'):
            await store.save_snapshot(a_snapshot(turns(2), step_index=2, idempotency_key=key))
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.idempotency_key for snapshot in read] == ['a', 'b']

    async def test_pruning_leaves_events_alone_and_numbers_go_on(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=1)
        for index in range(4):
            await store.commit([an_event(), a_snapshot(turns(index), step_index=index)])
        assert len(await store.list_events(run_id='run-1')) == 4
        (snapshot,) = await store.list_snapshots(run_id='run-1')
        assert snapshot.seq == 8

    async def test_kept_snapshot_is_whole_though_those_it_grew_from_are_pruned(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=1)
        await store.save_snapshot(a_snapshot(turns(2), step_index=2))
        await store.save_snapshot(a_snapshot(turns(4), 'fork', step_index=4))
        for length in range(3, 12):
            await store.commit([an_extension(turns(length), base_length=length - 1, step_index=length)])
        assert await _kept(store) == [11]
        assert await _kept(store, 'fork') == [4]
