"""Heads as documents, and what is asked about them. Nothing of a user becomes a name or an operator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harness_temporal.conversations.documents import head_key, load_summary, metadata_columns
from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.conversations.rules import Put
from harness_temporal.records import to_microseconds
from harness_temporal.stores.mongo.documents import Document

STORE: Final = 'MongoConversationStore'
HEADS: Final = 'conversation_heads'
_SPECIAL = re.compile(r'[\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]')
"""What is in ASCII and no letter and no digit."""


@dataclass(frozen=True)
class CurrentHead:
    """What a writer starts from."""

    version: bytes
    """Random, and another with every change."""
    summary: ConversationSummary

    @classmethod
    def of(cls, document: Document) -> CurrentHead:
        """Read the fields of a head that are not large."""
        return cls(document['version'], summary_of(document))


def summary_of(document: Document) -> ConversationSummary:
    """Return the summary of a head."""
    return load_summary(document['metadata'], STORE)


def fields_of(put: Put, version: bytes) -> Document:
    """Return what is to be put as fields of a document; one that is `None` is left out."""
    fields: Document = {
        **metadata_columns(put.summary),
        'version': version,
        'updated_at': to_microseconds(put.summary.updated_at),
    }
    if put.content is not None:
        history = put.content.history
        fields |= {'length': history.length, 'message_text': put.content.text}
        fields |= {} if history.head is None else {'head': history.head}
    return fields


def containing(text: str) -> Document:
    """Return a query for the heads with these characters in a searched text."""
    if not text:
        return {}
    # Every character stands for itself.
    pattern = _SPECIAL.sub(lambda match: f'\\{match[0]}', text)
    return {'$or': [{field: {'$regex': pattern}} for field in ('metadata_text', 'message_text')]}


def saved_before(moment: datetime, after: ConversationSummary | None) -> Document:
    """Return a query for the heads that were saved before then and come after one, by time and then key."""
    early: Document = {'updated_at': {'$lt': to_microseconds(moment)}}
    if after is None:
        return early
    last = to_microseconds(after.updated_at)
    later = [{'updated_at': {'$gt': last}}, {'updated_at': last, '_id': {'$gt': head_key(after.id)}}]
    return early | {'$or': later}
