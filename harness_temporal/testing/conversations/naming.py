"""Naming, beside those who save."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.errors import (
    NotStorableError,
)
from harness_temporal.testing.conversations.base import (
    HELD_ID,
    ConversationTests,
    OpenPlace,
    a_conversation,
)
from harness_temporal.testing.samples import (
    turns,
)


class NamingConformance(ConversationTests):
    """Naming, beside those who save."""

    async def test_name_leaves_activity_and_content(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=turns(2))
        assert await store.name(source=saved, title='T', subtitle='S', tags=['a', 'b'], tokens=7)
        read = await store.get(conversation_id=HELD_ID)
        assert read.messages == turns(2)
        named = {'title': 'T', 'subtitle': 'S', 'tags': ('a', 'b'), 'title_source': 'generated'}
        assert read.summary == replace(saved, **named, naming_version=1, named_revision=1, naming_tokens=7)

    async def test_name_is_kept_by_a_save_that_began_before(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=turns(1))
        assert await store.name(source=saved, title='T', tokens=3)
        again = await store.save(summary=replace(saved, model='m'), messages=turns(2))
        assert (again.title, again.naming_version, again.named_revision, again.naming_tokens) == ('T', 1, 1, 3)
        assert (again.model, again.revision) == ('m', 2)
        assert (await store.get(conversation_id=HELD_ID)).summary == again

    async def test_late_name_is_refused_but_its_tokens_count(self, store: ConversationStore) -> None:
        source = await store.save(summary=a_conversation(), messages=turns(1))
        newer = await store.save(summary=source, messages=turns(2))
        assert not await store.name(source=source, title='of older content', tokens=5)
        assert await store.name(source=newer, title='first', tokens=2)
        assert not await store.name(source=newer, title='of an older name', tokens=4)
        assert not await store.name(source=newer, title='of an older name', manual=True)
        summary = (await store.get(conversation_id=HELD_ID)).summary
        assert (summary.title, summary.naming_tokens, summary.naming_version) == ('first', 11, 1)

    async def test_name_of_a_person_stays(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=turns(1))
        assert await store.name(source=saved, title='mine', manual=True)
        named = (await store.get(conversation_id=HELD_ID)).summary
        assert named.title_source == 'user'
        assert not await store.name(source=named, title='generated', tokens=6)
        kept = (await store.get(conversation_id=HELD_ID)).summary
        assert kept == replace(named, naming_tokens=6)
        assert await store.name(source=kept, title='mine again', manual=True)

    async def test_deleted_conversation_is_not_brought_back_by_its_name(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=turns(1))
        await store.delete(source=saved)
        assert not await store.name(source=saved, title='T', manual=True, tokens=3)
        assert await store.listing() == []

    async def test_name_that_is_none_is_refused(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=[])
        wrong: list[dict[str, Any]] = [
            {'title': ' '},
            {'title': 'T', 'tags': ['a'] * 5},
            {'title': 'T', 'tokens': -1},
        ]
        for name in wrong:
            with pytest.raises(NotStorableError):
                await store.name(source=saved, **name)
        assert (await store.get(conversation_id=HELD_ID)).summary == saved

    async def test_names_and_messages_at_the_same_time(self, open_place: OpenPlace) -> None:
        first, second = (await open_place()).conversations, (await open_place()).conversations
        await first.save(summary=a_conversation(), messages=[])

        async def save() -> None:
            for number in range(1, 9):
                summary = (await first.get(conversation_id=HELD_ID)).summary
                await first.save(summary=summary, messages=turns(number))

        async def name() -> None:
            for _ in range(8):
                source = (await second.get(conversation_id=HELD_ID)).summary
                await second.name(source=source, title='T', tokens=1)

        await asyncio.gather(save(), name())
        summary = (await first.get(conversation_id=HELD_ID)).summary
        assert (summary.revision, summary.message_count, summary.naming_tokens) == (9, 8, 8)
