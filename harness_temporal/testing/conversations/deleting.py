"""Deleting a conversation with its runs, and what collection leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    UserPromptPart,
)

from harness_temporal.errors import (
    ConversationConflict,
)
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import media_uri
from harness_temporal.stores.maintenance import StoreMaintenance
from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.testing.conversations.base import (
    HELD_ID,
    PATHS,
    ConversationTests,
    Place,
    a_conversation,
    ids,
)
from harness_temporal.testing.maintenance import ALL, SHARED, blobs, collect_blobs, fill, later, left, prompt
from harness_temporal.testing.samples import (
    a_run,
    a_snapshot,
    turns,
)


class DeletingConformance(ConversationTests):
    """Deleting a conversation with its runs, and what collection leaves."""

    async def test_conversation_is_deleted_with_its_runs_and_shared_content_stays(self, place: Place) -> None:
        store, steps = place.conversations, place.steps
        saved = await store.save(summary=a_conversation(), messages=[prompt(SHARED), *turns(3)])
        await store.save(summary=a_conversation('other'), messages=[prompt(SHARED)])
        for number in range(3):
            await fill(steps, f'run-{number}', conversation_id=HELD_ID)
        await fill(steps, 'run-other', conversation_id='other')
        await fill(steps, 'run-alone')
        await store.delete(source=saved)
        assert [await left(steps, f'run-{number}') for number in range(3)] == [[], [], []]
        assert await left(steps, 'run-other') == await left(steps, 'run-alone') == ALL
        await collect_blobs(steps)
        assert (await store.get(conversation_id='other')).messages == [prompt(SHARED)]
        assert await blobs(steps) == {media_uri(SHARED.encode())}

    async def test_conversation_of_any_id_is_deleted_with_its_runs_alone(self, place: Place) -> None:
        store = place.conversations
        saved = {name: await store.save(summary=a_conversation(name), messages=[]) for name in PATHS.values()}
        for number, name in enumerate(saved):
            await place.steps.register_run(a_run(f'run-{number}', conversation_id=name))
        remaining = {*saved}
        for name, summary in saved.items():
            await store.delete(source=summary)
            remaining.remove(name)
            assert {run.conversation_id for run in await place.steps.list_runs()} == remaining
            assert {*await ids(store)} == remaining

    async def test_deleting_is_refused_for_another_revision(self, place: Place) -> None:
        store = place.conversations
        first = await store.save(summary=a_conversation(), messages=turns(1))
        await fill(place.steps, conversation_id=HELD_ID)
        second = await store.save(summary=first, messages=turns(2))
        with pytest.raises(ConversationConflict, match='revision 2'):
            await store.delete(source=first)
        assert await left(place.steps) == ALL
        await store.name(source=second, title='named meanwhile')
        await store.delete(source=second)
        with pytest.raises(ConversationConflict, match='deleted'):
            await store.delete(source=second)

    async def test_conversation_is_deleted_by_its_id_at_any_revision(self, place: Place) -> None:
        store = place.conversations
        first = await store.save(summary=a_conversation(), messages=turns(1))
        await store.save(summary=first, messages=turns(2))
        await store.save(summary=a_conversation('other'), messages=turns(1))
        await fill(place.steps, conversation_id=HELD_ID)
        assert await store.delete_by_id(conversation_id=HELD_ID)
        assert await left(place.steps) == []
        assert await ids(store) == ['other']
        assert not await store.delete_by_id(conversation_id=HELD_ID)

    async def test_maintenance_deletes_a_conversation_with_its_runs(self, place: Place) -> None:
        store, steps = place.conversations, place.steps
        maintenance = StoreMaintenance(steps, conversations=store)
        saved = await store.save(summary=a_conversation(outcome='running'), messages=turns(1))
        for run_id, conversation in (('run-1', HELD_ID), ('run-2', HELD_ID), ('run-other', 'without a head')):
            await fill(steps, run_id, conversation_id=conversation)
        with pytest.raises(ConversationConflict, match='busy'):
            await maintenance.delete_conversation(HELD_ID)
        assert (await left(steps), await left(steps, 'run-2')) == (ALL, ALL)
        await store.save(summary=replace(saved, outcome='completed'), messages=turns(2))
        assert {*await maintenance.delete_conversation(HELD_ID)} == {'run-1', 'run-2'}
        assert (await left(steps), await left(steps, 'run-2'), await ids(store)) == ([], [], [])
        # Nothing is left to be deleted twice, and a conversation needs no head.
        assert await maintenance.delete_conversation(HELD_ID) == []
        assert await left(steps, 'run-other') == ALL
        assert await maintenance.delete_conversation('without a head') == ['run-other']
        assert await left(steps, 'run-other') == []

    async def test_maintenance_deletes_runs_that_are_not_where_the_head_is(self, place: Place) -> None:
        elsewhere = InMemoryStepStore()
        await place.conversations.save(summary=a_conversation(), messages=turns(1))
        await fill(elsewhere, conversation_id=HELD_ID)
        maintenance = StoreMaintenance(elsewhere, conversations=place.conversations)
        assert await maintenance.delete_conversation(HELD_ID) == ['run-1']
        assert (await left(elsewhere), await ids(place.conversations)) == ([], [])

    async def test_collection_spares_what_a_conversation_has(self, place: Place) -> None:
        store, steps = place.conversations, place.steps
        saved = await store.save(summary=a_conversation(), messages=[*turns(4), prompt(SHARED)])
        await steps.save_snapshot(a_snapshot(turns(6)))
        await steps.delete_runs(['run-1'])
        await collect_blobs(steps)
        assert (await store.get(conversation_id=HELD_ID)).messages == [*turns(4), prompt(SHARED)]
        # What was collected can be saved again by a store that stored it before.
        again = await store.save(summary=saved, messages=turns(6))
        assert (await store.get(conversation_id=HELD_ID)).messages == turns(6)
        await collect_blobs(steps)
        assert (await store.get(conversation_id=HELD_ID)).messages == turns(6)
        assert await blobs(steps) == set()
        await store.delete(source=again)
        assert await steps.collect_messages(untouched_since=later()) == 6

    async def test_messages_that_were_collected_are_stored_again(self, place: Place) -> None:
        for _ in range(2):
            saved = await place.conversations.save(summary=a_conversation(), messages=[*turns(4), prompt(SHARED)])
            assert len((await place.conversations.get(conversation_id=HELD_ID)).messages) == 5
            await place.conversations.delete(source=saved)
            assert await place.steps.collect_messages(untouched_since=later()) == 5

    async def test_messages_are_shared_with_the_snapshots_of_the_runs(self, place: Place) -> None:
        saved = await place.conversations.save(summary=a_conversation(), messages=turns(4))
        await place.steps.save_snapshot(a_snapshot(turns(4)))
        await place.conversations.delete(source=saved)
        # The snapshot has all of them.
        assert await place.steps.collect_messages(untouched_since=later()) == 0

    async def test_large_parts_are_blobs_of_the_shared_media(self, place: Place) -> None:
        picture = BinaryContent(b'\x00sound' * 20_000, media_type='audio/wav')
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart([picture, 'what is it?'])]), prompt(SHARED)]
        await place.conversations.save(summary=a_conversation(), messages=messages)
        assert (await place.conversations.get(conversation_id=HELD_ID)).messages == messages
        assert isinstance(place.steps.media_store, BaseMediaStore)
        assert await blobs(place.steps) == {media_uri(SHARED.encode()), media_uri(picture.data)}
