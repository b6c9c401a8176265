"""Conversation heads: the whole history of a conversation as it stands, with its metadata.

They are not the snapshots of its runs: a head has the prompts that were accepted, and edits between runs such as
compaction. Each backend's driver is imported only when the backend is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.conversations.busy import ensure_inactive
from harness_temporal.conversations.protocol import BaseConversationStore, ConversationStore
from harness_temporal.conversations.records import (
    ConversationOutcome,
    ConversationSummary,
    SavedConversation,
    TitleSource,
)
from harness_temporal.conversations.sqlite import SqliteConversationStore
from harness_temporal.errors import ConversationConflict, ConversationNotFoundError
from harness_temporal.lazy import lazy_exports

if TYPE_CHECKING:
    from harness_temporal.conversations.mongo import MongoConversationStore as MongoConversationStore
    from harness_temporal.conversations.postgres import PostgresConversationStore as PostgresConversationStore

# Names that need an extra are importable but not in `__all__`: `import *` works without it.
__all__ = [
    'BaseConversationStore',
    'ConversationConflict',
    'ConversationNotFoundError',
    'ConversationOutcome',
    'ConversationStore',
    'ConversationSummary',
    'SavedConversation',
    'SqliteConversationStore',
    'TitleSource',
    'ensure_inactive',
]


__getattr__ = lazy_exports(
    __name__,
    {
        'MongoConversationStore': 'harness_temporal.conversations.mongo',
        'PostgresConversationStore': 'harness_temporal.conversations.postgres',
    },
)
