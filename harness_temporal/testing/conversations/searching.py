"""Listing and searching."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.errors import (
    ConfigurationError,
)
from harness_temporal.testing.conversations.base import (
    HELD_ID,
    ConversationTests,
    a_conversation,
    ids,
)
from harness_temporal.testing.maintenance import SHARED
from harness_temporal.testing.samples import (
    asks,
    says,
    turns,
)

FOLDED = {
    'sharp s': ('Straße', 'STRASSE'),
    'final sigma': ('ΑΣ', 'ας'),
    'decomposed query': ('caf\u00e9', 'CAFE\u0301'),
    'decomposed text': ('e\u0301t\u00e9', '\u00c9T\u00c9'),
    'capital sharp s': ('l\u1e9e', 'LSS'),
    'hangul': ('대화를 찾는다', '찾는'),
    'special': ('100% [a-z]+ (x|y) $1 \\d _', '100% [A-Z]+ (X|Y) $1 \\D _'),
    'NUL': ('a\x00b', 'A\x00B'),
    'surrogate': ('\ud83d!', '\ud83d!'),
    'blanks': ('tab\tand\nline', 'TAB\tAND\nLINE'),
}


class SearchingConformance(ConversationTests):
    """Listing and searching."""

    async def test_what_was_said_is_found_and_nothing_else(self, store: ConversationStore) -> None:
        asked: list[ModelRequestPart] = [
            UserPromptPart('plain question'),
            UserPromptPart(
                ['listed question', BinaryContent(b'picture', media_type='text/plain'), TextContent('tagged question')]
            ),
            SpeechPart(speaker='user', transcript='spoken question'),
            SystemPromptPart('instructed'),
            ToolReturnPart('lookup', 'returned', 'call-1'),
            CompactionPart('summarised'),
        ]
        answered: list[ModelResponsePart] = [
            TextPart('plain answer'),
            ThinkingPart('reasoned'),
            ToolCallPart('lookup', {'argument': 'called'}, 'call-1'),
        ]
        await store.save(summary=a_conversation(), messages=[ModelRequest(parts=asked), ModelResponse(parts=answered)])
        for found in (
            'plain question',
            'listed',
            'tagged question',
            'spoken question',
            'plain answer',
            'question\ntagged',
        ):
            assert await ids(store, found) == [HELD_ID], found
        for hidden in (
            'picture',
            'instructed',
            'returned',
            'summarised',
            'reasoned',
            'called',
            'lookup',
            'user',
            'part',
        ):
            assert await ids(store, hidden) == [], hidden

    async def test_metadata_is_found_but_not_its_form(self, store: ConversationStore) -> None:
        given = a_conversation(
            workspace='Home', title='A title', subtitle='Some more', tags=('red', 'blue'), model='big-1'
        )
        saved = await store.save(summary=given, messages=[])
        for found in ('home', 'a TITLE', 'more', 'red', 'blue', 'big-1', HELD_ID):
            assert await ids(store, found) == [HELD_ID], found
        for hidden in ('fallback', 'schema_version', 'ready', '"', 'revision'):
            assert await ids(store, hidden) == [], hidden
        await store.name(source=saved, title='Renamed')
        assert await ids(store, 'renamed') == [HELD_ID]
        assert await ids(store, 'a title') == []

    async def test_case_is_folded(self, store: ConversationStore) -> None:
        for name, (said, _) in FOLDED.items():
            await store.save(summary=a_conversation(name), messages=[asks(f'before {said} after')])
        for name, (_, query) in FOLDED.items():
            assert await ids(store, query) == [name]

    async def test_characters_of_a_query_stand_for_themselves(self, store: ConversationStore) -> None:
        await store.save(summary=a_conversation(), messages=[asks('plain \x00 caf\u00e9')])
        for query in ('.*', '%', '_', 'f8ff', '0000', 'cafe', "' OR 1=1 --", '\\', '(', '\x01'):
            assert await ids(store, query) == [], query

    async def test_replaced_messages_are_not_found(self, store: ConversationStore) -> None:
        first = await store.save(summary=a_conversation(), messages=[asks('before compaction')])
        assert await ids(store, 'before compaction') == [HELD_ID]
        await store.save(summary=first, messages=[ModelRequest(parts=[CompactionPart('before compaction')])])
        assert await ids(store, 'before compaction') == []

    async def test_large_text_is_found(self, store: ConversationStore) -> None:
        await store.save(summary=a_conversation(), messages=[asks(f'needle {SHARED}'), says('x' * 2_900_000)])
        assert await ids(store, 'Needle shared') == []
        await store.save(summary=a_conversation('other'), messages=[asks(f'needle {SHARED}'), says('x' * 2_800_000)])
        assert await ids(store, 'Needle shared') == ['other']

    async def test_listing_is_by_activity_in_pages(self, store: ConversationStore) -> None:
        for number in range(5):
            await store.save(
                summary=a_conversation(f'{number}', model='even' if number % 2 == 0 else 'odd'), messages=[]
            )
        oldest = (await store.get(conversation_id='0')).summary
        await store.save(summary=oldest, messages=turns(1))
        assert await ids(store) == ['0', '4', '3', '2', '1']
        pages = [await store.listing(limit=2, offset=offset) for offset in (0, 2, 4, 6)]
        assert [[summary.id for summary in page] for page in pages] == [['0', '4'], ['3', '2'], ['1'], []]
        assert [summary.id for summary in await store.listing(query='EVEN', limit=1, offset=1)] == ['4']
        assert len(await store.listing(limit=2**70, offset=0)) == 5
        assert await store.listing(offset=2**70) == []

    async def test_listing_of_nothing_possible_is_refused(self, store: ConversationStore) -> None:
        wrong: list[dict[str, Any]] = [{'limit': 0}, {'offset': -1}, {'query': 'x' * 1_001}]
        for arguments in wrong:
            with pytest.raises(ConfigurationError, match=next(iter(arguments))):
                await store.listing(**arguments)
