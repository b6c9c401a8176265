"""Names that are for ever: of conversation heads in every store, and of the activity that names them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import pytest

from harness_temporal.conversations import ConversationOutcome, ConversationSummary, TitleSource
from harness_temporal.conversations.documents import dump_summary, head_key, load_summary, metadata_text
from harness_temporal.history import encode_history
from harness_temporal.temporal import naming
from harness_temporal.testing.samples import NOON, turns

SUMMARY = ConversationSummary(id='é\x00', updated_at=NOON, busy_until=NOON, tags=('a', '\ud800'), title='T"')
STORED = (
    '{"schema_version": 1, "id": "é\\u0000", "workspace": "", "updated_at": 1772366400123457, "revision": 0, '
    '"title": "T\\"", "subtitle": "", "tags": ["a", "\uf8ffd800"], "title_source": "fallback", "naming_version": 0, '
    '"named_revision": 0, "model": null, "outcome": "ready", "run_id": null, "owner_pid": null, '
    '"busy_until": 1772366400123457, "message_count": 0, "total_tokens": 0, "naming_tokens": 0}'
)


def test_metadata_is_stored_and_read_as_ever() -> None:
    assert dump_summary(SUMMARY) == STORED
    assert load_summary(STORED, 'store') == SUMMARY


def test_values_of_metadata() -> None:
    assert get_args(TitleSource) == ('fallback', 'generated', 'user')
    assert get_args(ConversationOutcome) == ('ready', 'running', 'completed', 'failed', 'cancelled')


def test_key_of_a_head() -> None:
    assert head_key('conversation').hex() == '8b34dbc2c05eb4d7e25d48efeace82456b16cee760bcae80c157f52a3c2e787b'
    assert head_key('\ud800\x00').hex() == '54e8de6f3a9f43134f42c4a32e48f805f166d6cda49881a2f3f67700ce18b7ae'


def test_text_that_is_searched() -> None:
    summary = replace(SUMMARY, title='Straße', subtitle='S', model='M', workspace='W', tags=('E\u0301',))
    assert metadata_text(summary) == 'strasse\ns\n\xe9\nw\nm\n\xe9\ufffd'


def test_names_in_histories() -> None:
    assert naming.NAME_CONVERSATION_ACTIVITY == 'harness_temporal__name_conversation'
    assert [field.name for field in fields(naming.NamingInput)] == ['conversation_id', 'tail', 'title', 'subtitle']
    assert [field.name for field in fields(naming.NamingOutput)] == ['name', 'tokens']
    assert [*naming.SessionName.model_fields] == ['title', 'subtitle', 'tags']


@pytest.mark.mongo
async def test_documents_of_conversations_in_mongodb(mongo: str, database: str) -> None:
    from pymongo import AsyncMongoClient

    from harness_temporal.conversations import MongoConversationStore

    store = MongoConversationStore(db_url=mongo, database=database)
    saved = await store.save(summary=ConversationSummary(id='c', title='T'), messages=turns(2))
    await store.aclose()
    async with AsyncMongoClient[dict[str, object]](mongo) as client:
        [document] = await client[database]['conversation_heads'].find().to_list()
    version, updated_at = document.pop('version'), document.pop('updated_at')
    assert document == {
        '_id': head_key('c'),
        'metadata': dump_summary(saved),
        'metadata_text': 't\n\n\n\nc',
        'message_text': 'turn 0\nturn 1',
        'head': encode_history(turns(2)).head,
        'length': 2,
    }
    assert isinstance(version, bytes)
    # Microseconds since 1970.
    assert isinstance(updated_at, int)
    assert len(str(updated_at)) == 16
