"""What is kept of a conversation beside its messages. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from pydantic_ai.messages import ModelMessage

from harness_temporal.records import utc_now

SCHEMA_VERSION: Final = 1
"""Of the metadata. Any other one is refused."""
MOST_TAGS: Final = 4
"""Tags that a name has at most (step-persistence seed, "Conversation heads")."""

TitleSource: TypeAlias = Literal['fallback', 'generated', 'user']
"""Who named the conversation. `fallback`: nobody did yet."""
ConversationOutcome: TypeAlias = Literal['ready', 'running', 'completed', 'failed', 'cancelled']
"""How the latest turn stands. `running` marks the conversation as busy."""


@dataclass(frozen=True, kw_only=True)
class ConversationSummary:
    """The metadata of a conversation head.

    What a store returns says which state of the conversation it is of: hand it back to save the next state, to name
    this one, or to delete it. A new conversation begins with a summary of its own, `ConversationSummary()`.
    """

    schema_version: int = SCHEMA_VERSION
    id: str = field(default_factory=lambda: str(uuid4()))
    """The `conversation_id` of its runs."""
    workspace: str = ''
    """Where the conversation belongs, in terms of the application."""
    updated_at: datetime = field(default_factory=utc_now)
    """When the messages were saved last. Naming does not change it."""
    revision: int = 0
    """How often the messages were saved."""
    title: str = 'New conversation'
    subtitle: str = ''
    tags: tuple[str, ...] = ()
    title_source: TitleSource = 'fallback'
    naming_version: int = 0
    """How often the conversation was named."""
    named_revision: int = 0
    """The revision that it was named at."""
    model: str | None = None
    outcome: ConversationOutcome = 'ready'
    run_id: str | None = None
    """The latest run."""
    owner_pid: int | None = None
    """The process on this machine that works on the conversation, in a store of one machine."""
    busy_until: datetime | None = None
    """The end of the lease of whoever works on the conversation, in a shared store."""
    message_count: int = 0
    total_tokens: int = 0
    """What the responses among the messages used."""
    naming_tokens: int = 0
    """What naming used. It is in no message."""

    def __post_init__(self) -> None:
        for name in ('updated_at', 'busy_until'):
            moment: datetime | None = getattr(self, name)
            if moment is not None:
                if moment.tzinfo is None:
                    raise ValueError(f'`ConversationSummary.{name}` needs a time zone; got the naive {moment!r}.')
                object.__setattr__(self, name, moment.astimezone(UTC))


@dataclass(frozen=True, kw_only=True)
class SavedConversation:
    """A conversation head: the whole history as it stands, and its metadata."""

    summary: ConversationSummary
    messages: list[ModelMessage]
