"""Deleting runs, and collecting messages and blobs that nothing refers to (`StoreMaintenance`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from harness_temporal.errors import ConfigurationError
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import media_uri
from harness_temporal.records import utc_now
from harness_temporal.stores.maintenance import StoreMaintenance
from harness_temporal.stores.protocol import BaseStepStore
from harness_temporal.testing.base import OpenStore, StoreTests
from harness_temporal.testing.samples import (
    NOON,
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    turns,
)

HOUR = timedelta(hours=1)
SHARED = 'shared ' * 20_000
OWN = 'own ' * 20_000


def later() -> datetime:
    """Return a moment that everything of the test is older than."""
    return utc_now() + HOUR


def prompt(text: str) -> ModelMessage:
    """Make a message of its own."""
    return ModelRequest(parts=[UserPromptPart(text, timestamp=NOON)], timestamp=NOON)


async def fill(store: BaseStepStore, run_id: str = 'run-1', at: datetime = NOON, **fields: object) -> None:
    """Write one record of each kind for a run."""
    await store.commit(
        [
            a_run(run_id, started_at=at, **fields),
            an_event(run_id, timestamp=at, idempotency_key='event'),
            a_snapshot([prompt(f'of {run_id}'), *turns(2)], run_id, timestamp=at, idempotency_key='snapshot'),
            an_end(run_id, started_at=at, ended_at=at),
            a_response(run_id),
        ]
    )


async def left(store: BaseStepStore, run_id: str = 'run-1') -> list[str]:
    """Return which kinds of records a run has."""
    kinds = {
        'run': await store.get_run(run_id=run_id),
        'events': await store.list_events(run_id=run_id),
        'snapshots': await store.list_snapshots(run_id=run_id, include_interrupted=True),
        'effects': await store.list_tool_effects(run_id=run_id),
        'response': await store.get_model_response(run_id=run_id, key='request-1'),
    }
    return [kind for kind, found in kinds.items() if found]


async def blobs(store: BaseStepStore) -> set[str]:
    """Return the URIs of all blobs."""
    assert isinstance(store.media_store, BaseMediaStore)
    return {f'media+sha256://{blob.digest}' async for blob in store.media_store.blobs()}


async def collect_blobs(store: BaseStepStore) -> None:
    """Do what `StoreMaintenance.collect` does, without its grace."""
    await store.collect_messages(untouched_since=later())
    referenced = {digest async for digest in store.media_references()}
    assert isinstance(store.media_store, BaseMediaStore)
    for blob in [blob async for blob in store.media_store.blobs()]:
        if blob.digest not in referenced:
            await store.media_store.delete(blob.digest, untouched_since=later())


ALL = ['run', 'events', 'snapshots', 'effects', 'response']


class MaintenanceConformance(StoreTests):
    """For stores that derive from `BaseStepStore`."""

    # --- deleting runs ---

    async def test_deleted_run_leaves_nothing_and_others_stay(self, store: BaseStepStore) -> None:
        await fill(store, 'run-1')
        await fill(store, 'run-2')
        assert await store.delete_runs(['run-1'])
        assert await left(store, 'run-1') == []
        assert await store.list_unresolved_tool_effects(run_id='run-1') == []
        assert await left(store, 'run-2') == ALL

    async def test_deleted_run_can_begin_anew_with_the_same_keys(self, store: BaseStepStore) -> None:
        await fill(store)
        await store.append_event(an_event())
        assert await store.delete_runs(['run-1'])
        await fill(store)
        assert await left(store) == ALL
        [event] = await store.list_events(run_id='run-1')
        [effect] = await store.list_tool_effects(run_id='run-1')
        assert {effect.seq, event.seq} == {1, 2}

    async def test_deleting_what_is_not_there_is_fine(self, store: BaseStepStore) -> None:
        assert await store.delete_runs(['run-1'])
        assert await store.delete_runs([])

    async def test_a_store_that_wrote_a_run_notices_that_another_deleted_it(self, open_store: OpenStore) -> None:
        first = await open_store()
        second = await open_store() if self.persistent else first
        assert isinstance(first, BaseStepStore)
        assert isinstance(second, BaseStepStore)
        await first.commit([a_start(), a_snapshot(turns(3))])
        await second.delete_runs(['run-1'])
        await second.collect_messages(untouched_since=later())
        await first.commit([a_start(), an_end(), a_snapshot(turns(4))])
        [snapshot] = await second.list_snapshots(run_id='run-1')
        assert snapshot.messages == turns(4)
        [effect] = await second.list_tool_effects(run_id='run-1')
        assert effect.status == 'completed'

    @pytest.mark.parametrize('kind', ['run', 'event', 'snapshot', 'effect start', 'effect end'])
    async def test_run_that_was_active_lately_is_spared(self, store: BaseStepStore, kind: str) -> None:
        moment = NOON + HOUR
        match kind:
            case 'run':
                await store.register_run(a_run('run-1', started_at=moment))
            case 'event':
                await fill(store)
                await store.append_event(an_event(timestamp=moment))
            case 'snapshot':
                await fill(store)
                await store.save_snapshot(a_snapshot(turns(1), timestamp=moment))
            case 'effect start':
                await store.record_tool_effect(a_start(started_at=moment))
            case _:
                await store.record_tool_effect(an_end(started_at=NOON, ended_at=moment))
        await fill(store, 'run-2')
        assert not await store.delete_runs(['run-2', 'run-1'], idle_since=moment)
        assert await left(store, 'run-2') == ALL
        assert await left(store, 'run-1') != []
        assert await store.delete_runs(['run-2', 'run-1'], idle_since=moment + timedelta(microseconds=1))
        assert await left(store, 'run-1') == await left(store, 'run-2') == []

    # --- finding runs ---

    async def test_runs_are_found_by_pages(self, store: BaseStepStore) -> None:
        ids = {f'run-{number}' for number in range(25)} | {'Run-1', 'run:1', 'a', 'Z', '_'}
        for number, run_id in enumerate(sorted(ids)):
            await store.register_run(a_run(run_id, started_at=NOON + number * HOUR))
        found: list[str] = []
        while page := await store.runs_by_id(
            started_before=NOON + 20 * HOUR, after=found[-1] if found else None, limit=7
        ):
            assert len(page) <= 7
            found += [run.run_id for run in page]
            # What was found may be deleted before the next page is asked for.
            await store.delete_runs([page[-1].run_id])
        assert len(found) == len({*found}) == 20
        assert {*found} == {*sorted(ids)[:20]}

    # --- collecting messages ---

    async def _count(self, store: BaseStepStore, snapshots: Sequence[list[ModelMessage]]) -> None:
        read = await store.list_snapshots(run_id='run-1', include_interrupted=True)
        assert [snapshot.messages for snapshot in read] == list(snapshots)

    async def test_messages_that_a_snapshot_has_stay(self, store: BaseStepStore) -> None:
        for length in (3, 1, 5):
            await store.save_snapshot(a_snapshot(turns(length)))
        assert await store.collect_messages(untouched_since=later()) == 0
        await self._count(store, [turns(3), turns(1), turns(5)])

    async def test_messages_of_deleted_runs_go_and_shared_ones_stay(self, store: BaseStepStore) -> None:
        await store.save_snapshot(a_snapshot([*turns(4), prompt('a'), prompt('b')]))
        await store.save_snapshot(a_snapshot([*turns(4), prompt('c')], 'run-2'))
        await store.save_snapshot(a_snapshot([prompt('d'), prompt('b')], 'run-3'))
        await store.delete_runs(['run-2', 'run-3'])
        assert await store.collect_messages(untouched_since=later()) == 3  # 'c', and 'd' with the 'b' after it
        assert await store.collect_messages(untouched_since=later()) == 0
        await self._count(store, [[*turns(4), prompt('a'), prompt('b')]])

    async def test_messages_of_pruned_snapshots_go(self, open_store: OpenStore) -> None:
        store = await open_store(max_snapshots_per_run=1)
        assert isinstance(store, BaseStepStore)
        for number in range(5):
            await store.save_snapshot(a_snapshot([*turns(2), prompt(f'{number}')]))
        assert await store.collect_messages(untouched_since=later()) == 4
        await self._count(store, [[*turns(2), prompt('4')]])

    async def test_collected_messages_can_be_saved_again(self, store: BaseStepStore) -> None:
        for _ in range(3):
            await store.save_snapshot(a_snapshot(turns(6)))
            await self._count(store, [turns(6)])
            await store.delete_runs(['run-1'])
            assert await store.collect_messages(untouched_since=later()) == len(turns(6))

    async def test_many_messages_are_collected(self, store: BaseStepStore) -> None:
        messages = [prompt(f'{number}') for number in range(700)]
        for number in range(0, 600, 100):
            await store.save_snapshot(a_snapshot(messages[number : number + 100], f'run-{number}'))
        await store.save_snapshot(a_snapshot(messages, 'long'))
        await store.save_snapshot(a_snapshot(messages[:2]))
        await store.delete_runs(['long', *(f'run-{number}' for number in range(0, 600, 100))])
        assert await store.collect_messages(untouched_since=later()) == 698 + 500
        await self._count(store, [messages[:2]])

    async def test_writers_and_collectors_at_the_same_time(self, open_store: OpenStore) -> None:
        first = await open_store()
        second = await open_store() if self.persistent else first
        assert isinstance(first, BaseStepStore)
        assert isinstance(second, BaseStepStore)
        done = False

        async def write(name: str) -> None:
            for number in range(25):
                run_id, messages = f'{name}-{number}', [*turns(3), prompt(f'{number % 3}'), prompt(name)]
                await first.save_snapshot(a_snapshot(messages[:4], run_id))
                await first.commit([an_extension(messages, base_length=4, run_id=run_id)])
                read = await second.list_snapshots(run_id=run_id)
                assert [item.messages for item in read] == [messages[:4], messages]
                await second.delete_runs([run_id])

        async def collect() -> None:
            while not done:
                # As the caller does: what was used within the grace is spared.
                await second.collect_messages(untouched_since=utc_now() - HOUR)
                await asyncio.sleep(0)

        collecting = asyncio.create_task(collect())
        try:
            await asyncio.gather(write('a'), write('b'))
        finally:
            done = True
            await collecting
        for run_id in (f'{name}-{number}' for name in ('a', 'b') for number in range(25)):
            assert await left(second, run_id) == []

    # --- blobs ---

    async def test_references_are_found_in_messages_effects_and_responses(self, store: BaseStepStore) -> None:
        if store.media_store is None:
            assert [digest async for digest in store.media_references()] == []
            return
        texts = [f'{name} ' * 40_000 for name in ('message', 'value', 'response')]
        value, body = (b'{"result":"%b"}' % text.encode() for text in texts[1:])
        await store.commit([a_snapshot([prompt(texts[0])]), a_start(), a_response(body=body)])
        await store.record_tool_effect(an_end(value=value))
        expected = {media_uri(text.encode())[-64:] for text in texts}
        assert {digest async for digest in store.media_references()} == expected
        await store.delete_runs(['run-1'])
        await store.collect_messages(untouched_since=later())
        assert [digest async for digest in store.media_references()] == []

    async def test_many_references_are_found(self, store: BaseStepStore) -> None:
        if store.media_store is None:
            return
        texts = [f'{number:03} ' * 20_000 for number in range(230)]
        await store.save_snapshot(a_snapshot([prompt(text) for text in texts]))
        expected = {media_uri(text.encode())[-64:] for text in texts}
        assert {digest async for digest in store.media_references()} == expected

    async def test_blob_of_a_deleted_conversation_goes_unless_another_has_it(self, store: BaseStepStore) -> None:
        if store.media_store is None:
            return
        for conversation in ('one', 'two'):
            await fill(store, f'run-{conversation}', conversation_id=conversation)
        await store.save_snapshot(a_snapshot([prompt(SHARED), prompt(OWN)], 'run-one'))
        await store.save_snapshot(a_snapshot([prompt(SHARED)], 'run-two'))
        assert await StoreMaintenance(store).delete_conversation('one') == ['run-one']
        await collect_blobs(store)
        assert await left(store, 'run-one') == []
        assert await blobs(store) == {media_uri(SHARED.encode())}
        read = await store.latest_snapshot(run_id='run-two')
        assert read is not None
        assert read.messages == [prompt(SHARED)]

    async def test_collect_spares_what_is_young(self, store: BaseStepStore) -> None:
        await store.save_snapshot(a_snapshot([prompt(OWN)]))
        await store.delete_runs(['run-1'])
        collected = await StoreMaintenance(store).collect()
        assert (collected.blobs, collected.leftovers) == (0, 0)
        await store.save_snapshot(a_snapshot([prompt(OWN)]))
        await self._count(store, [[prompt(OWN)]])

    @pytest.mark.parametrize('grace', [timedelta(0), timedelta(minutes=119)])
    async def test_grace_that_is_too_short_is_refused(self, store: BaseStepStore, grace: timedelta) -> None:
        with pytest.raises(ConfigurationError, match='grace'):
            StoreMaintenance(store, grace=grace)

    # --- age ---

    async def test_idle_runs_expire(self, store: BaseStepStore) -> None:
        now = utc_now()
        await fill(store, 'old', now - 10 * HOUR)
        await fill(store, 'young', now - HOUR)
        await fill(store, 'active', now - 10 * HOUR)
        await store.append_event(an_event('active', timestamp=now - HOUR))
        assert await StoreMaintenance(store).expire(idle_for=5 * HOUR) == ['old']
        assert await left(store, 'old') == []
        assert await left(store, 'young') == await left(store, 'active') == ALL

    async def test_runs_of_a_conversation_expire_together(self, store: BaseStepStore) -> None:
        now = utc_now()
        for conversation, last in (('done', 6), ('going-on', 1)):
            await fill(store, f'{conversation}-1', now - 10 * HOUR, conversation_id=conversation)
            await fill(store, f'{conversation}-2', now - last * HOUR, conversation_id=conversation)
        assert {*await StoreMaintenance(store).expire(idle_for=5 * HOUR)} == {'done-1', 'done-2'}
        assert await left(store, 'going-on-1') == ALL

    async def test_run_with_an_unknown_outcome_waits_for_a_person(self, store: BaseStepStore) -> None:
        now = utc_now()
        await fill(store, 'run-1', now - 10 * HOUR)
        await store.record_tool_effect(a_start(call_key='key-2', started_at=now - 10 * HOUR))
        assert await StoreMaintenance(store).expire(idle_for=5 * HOUR) == []
        assert await StoreMaintenance(store).expire(idle_for=5 * HOUR, include_unresolved=True) == ['run-1']

    async def test_many_runs_expire(self, store: BaseStepStore) -> None:
        then = utc_now() - 10 * HOUR
        await store.commit([a_run(f'run-{number}', started_at=then) for number in range(230)])
        assert len(await StoreMaintenance(store).expire(idle_for=HOUR)) == 230
        assert await store.list_runs() == []
