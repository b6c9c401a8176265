"""The names of `harness_temporal.conversations`, where the step-persistence seed documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.conversations import (
    ConversationConflict,
    ConversationNotFoundError,
    ConversationOutcome,
    ConversationStore,
    ConversationSummary,
    SavedConversation,
    SqliteConversationStore,
    TitleSource,
    ensure_inactive,
)
from harness_temporal.lazy import lazy_exports

if TYPE_CHECKING:
    from harness_temporal.conversations import MongoConversationStore as MongoConversationStore
    from harness_temporal.conversations import PostgresConversationStore as PostgresConversationStore

__all__ = [
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
