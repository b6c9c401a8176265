"""Saving revisions, and reading them back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.conversations.records import ConversationSummary, SavedConversation
from harness_temporal.errors import (
    ConversationConflict,
    ConversationNotFoundError,
    NotStorableError,
)
from harness_temporal.history import encode_message
from harness_temporal.records import utc_now
from harness_temporal.testing.conversations.base import (
    HELD_ID,
    PATHS,
    ConversationTests,
    OpenPlace,
    a_conversation,
    ids,
)
from harness_temporal.testing.maintenance import SHARED
from harness_temporal.testing.samples import (
    KEYS,
    MESSAGES,
    TEXTS,
    asks,
    same,
    says,
    turns,
)


class SavingConformance(ConversationTests):
    """Saving revisions, and reading them back."""

    async def test_saved_conversation_reads_back(self, store: ConversationStore) -> None:
        before = utc_now()
        given = a_conversation(workspace='w', model='m', outcome='completed', run_id='run-1', title='T', tags=('a',))
        saved = await store.save(summary=given, messages=turns(4))
        assert saved == replace(given, revision=1, message_count=4, updated_at=saved.updated_at)
        assert before <= saved.updated_at <= utc_now()
        read = await store.get(conversation_id=HELD_ID)
        assert read == SavedConversation(summary=saved, messages=turns(4))

    async def test_each_save_is_a_revision_and_replaces_all_messages(self, store: ConversationStore) -> None:
        summary = a_conversation()
        histories: list[list[ModelMessage]] = [turns(2), turns(6), [], turns(3, topic='compacted'), turns(6)]
        for number, messages in enumerate(histories, 1):
            summary = await store.save(summary=summary, messages=messages)
            assert (summary.revision, summary.message_count) == (number, len(messages))
            assert (await store.get(conversation_id=HELD_ID)).messages == messages

    async def test_stale_writer_is_refused_and_changes_nothing(self, store: ConversationStore) -> None:
        first = await store.save(summary=a_conversation(), messages=turns(1))
        second = await store.save(summary=first, messages=turns(2))
        for stale in (a_conversation(), first, replace(second, revision=3)):
            with pytest.raises(ConversationConflict, match=HELD_ID):
                await store.save(summary=stale, messages=turns(9))
        assert await store.get(conversation_id=HELD_ID) == SavedConversation(summary=second, messages=turns(2))

    async def test_deleted_conversation_is_not_brought_back_by_a_writer(self, store: ConversationStore) -> None:
        saved = await store.save(summary=a_conversation(), messages=turns(1))
        await store.delete(source=saved)
        with pytest.raises(ConversationConflict, match='deleted'):
            await store.save(summary=saved, messages=turns(2))
        with pytest.raises(ConversationNotFoundError, match=HELD_ID):
            await store.get(conversation_id=HELD_ID)
        assert await store.listing() == []
        # Under the same id a new one may begin.
        assert (await store.save(summary=a_conversation(), messages=turns(1))).revision == 1

    async def test_one_of_many_writers_of_a_revision_wins(self, open_place: OpenPlace) -> None:
        stores = [(await open_place()).conversations for _ in range(3)]
        summary = a_conversation()
        for _ in range(4):
            tries = [
                store.save(summary=replace(summary, model=f'{number}'), messages=turns(number))
                for number, store in enumerate([*stores, *stores])
            ]
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [result for result in results if isinstance(result, ConversationSummary)]
            assert len(won) == 1, results
            assert sum(isinstance(result, ConversationConflict) for result in results) == len(tries) - 1
            summary = won[0]
            read = await stores[0].get(conversation_id=HELD_ID)
            assert read == SavedConversation(summary=summary, messages=turns(summary.message_count))

    async def test_tokens_of_the_messages_are_counted(self, store: ConversationStore) -> None:
        usage = RequestUsage(input_tokens=5, output_tokens=2)
        messages = [*turns(1), ModelResponse(parts=[TextPart('x')], usage=usage)]
        saved = await store.save(summary=a_conversation(), messages=messages * 2)
        assert saved.total_tokens == 14

    async def test_every_kind_of_message_reads_back(self, store: ConversationStore) -> None:
        messages = list(MESSAGES.values())
        await store.save(summary=a_conversation(), messages=messages)
        read = await store.get(conversation_id=HELD_ID)
        assert [encode_message(message) for message in read.messages] == [encode_message(item) for item in messages]

    async def test_text_of_any_kind_reads_back(self, store: ConversationStore) -> None:
        for name, text in TEXTS.items():
            given = a_conversation(
                name, workspace=text, title=text, subtitle=text, tags=(text,), model=text, run_id=text
            )
            saved = await store.save(summary=given, messages=[asks(text), says(text)])
            read = await store.get(conversation_id=name)
            assert same(read.summary, saved), name
            assert same(read.messages, [asks(text), says(text)]), name
            assert await store.name(source=saved, title=f'.{text}', subtitle=text, tags=[text], manual=True), name
            assert (await store.get(conversation_id=name)).summary.title == f'.{text}', name

    async def test_distinct_ids_are_distinct_conversations(self, store: ConversationStore) -> None:
        names = [*{**PATHS, **KEYS}.values()]
        for number, name in enumerate(dict.fromkeys(names)):
            await store.save(summary=a_conversation(name, model=f'{number}'), messages=turns(number % 5))
        for number, name in enumerate(dict.fromkeys(names)):
            read = await store.get(conversation_id=name)
            assert (read.summary.id, read.summary.model, read.messages) == (name, f'{number}', turns(number % 5))
        assert {*await ids(store)} == {*names}

    async def test_summary_that_would_not_read_back_is_refused(self, store: ConversationStore) -> None:
        wrong: list[tuple[str, Any]] = [
            ('schema_version', 2),
            ('revision', -1),
            ('total_tokens', 2**63),
            ('workspace', 3),
            ('tags', ['a']),
            ('outcome', 'lost'),
            ('title_source', 'me'),
            ('owner_pid', 0),
            ('owner_pid', -1),
            ('model', b'm'),
        ]
        for name, value in wrong:
            with pytest.raises(NotStorableError, match=name):
                await store.save(summary=replace(a_conversation(), **{name: value}), messages=[])
        assert await store.listing() == []

    async def test_message_that_would_not_read_back_is_refused(self, store: ConversationStore) -> None:
        with pytest.raises(NotStorableError, match='tool'):
            await store.save(
                summary=a_conversation(),
                messages=[ModelRequest(parts=[ToolReturnPart('tool', {1: 'a', '1': 'b'}, 'call-1')])],
            )
        assert await store.listing() == []

    async def test_saving_gives_a_list_that_changes_later_no_chance(self, store: ConversationStore) -> None:
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(SHARED)]), *turns(1)]
        saving = asyncio.ensure_future(store.save(summary=a_conversation(), messages=messages))
        await asyncio.sleep(0)
        messages.clear()
        assert (await saving).message_count == 2
        assert len((await store.get(conversation_id=HELD_ID)).messages) == 2
