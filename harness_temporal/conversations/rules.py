"""What a change makes of a conversation head, the same in every store. Pure but for asking whether a process lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from pydantic_ai.messages import ModelMessage, ModelResponse

from harness_temporal.conversations.busy import ensure_inactive, is_busy
from harness_temporal.conversations.records import MOST_TAGS, ConversationSummary
from harness_temporal.errors import ConversationConflict, NotStorableError
from harness_temporal.records import EncodedHistory


@dataclass(frozen=True)
class Content:
    """The messages of a conversation, as they are stored and as they are searched."""

    history: EncodedHistory
    text: str


@dataclass(frozen=True)
class Put:
    """Write the head. Without content the messages stay as they are."""

    summary: ConversationSummary
    content: Content | None = None


@dataclass(frozen=True)
class Delete:
    """Delete the head and all runs of the conversation."""

    conversation_id: str
    idle_since: datetime | None = None
    """Not if anything happened in one of the runs since."""
    spare_unresolved: bool = False
    """Not if one of the runs has a tool effect whose outcome is unknown."""


Change: TypeAlias = Put | Delete
Decide: TypeAlias = Callable[[ConversationSummary | None], Change | None]
"""Says what to do with a head, given what the store has now. It may be asked again when another writer was faster."""


@dataclass(frozen=True)
class Name:
    """What a conversation is to be called."""

    title: str
    subtitle: str
    tags: tuple[str, ...]
    manual: bool
    tokens: int

    def __post_init__(self) -> None:
        if not self.title.strip():
            raise NotStorableError('The name of a conversation', 'its title is empty.')
        if len(self.tags) > MOST_TAGS:
            raise NotStorableError('The name of a conversation', f'it has more than {MOST_TAGS} tags.')
        if self.tokens < 0:
            raise NotStorableError('The name of a conversation', f'it cannot have used {self.tokens} tokens.')


def saved(
    current: ConversationSummary | None, given: ConversationSummary, messages: Sequence[ModelMessage], now: datetime
) -> ConversationSummary:
    """Return the summary of the next revision.

    Raises:
        ConversationConflict: The given one is not of the current revision.
    """
    if current is None and given.revision:
        raise ConversationConflict(given.id, 'was deleted. Begin a new one to save its messages.')
    if current is not None and current.revision != given.revision:
        raise ConversationConflict(
            given.id, f'was changed by another writer: it is at revision {current.revision}, not {given.revision}.'
        )
    # Naming goes its own way: what was named meanwhile stays.
    named = given if current is None else current
    return replace(
        given,
        revision=given.revision + 1,
        updated_at=now,
        message_count=len(messages),
        total_tokens=sum(message.usage.total_tokens for message in messages if isinstance(message, ModelResponse)),
        title=named.title,
        subtitle=named.subtitle,
        tags=named.tags,
        title_source=named.title_source,
        naming_version=named.naming_version,
        named_revision=named.named_revision,
        naming_tokens=named.naming_tokens,
    )


def may_name(current: ConversationSummary, source: ConversationSummary, name: Name) -> bool:
    """Whether a name that was made of `source` still fits, and does not take the place of one that a person gave."""
    is_same = (current.revision, current.naming_version) == (source.revision, source.naming_version)
    return is_same and (name.manual or current.title_source != 'user')


def named(current: ConversationSummary, source: ConversationSummary, name: Name) -> ConversationSummary:
    """Return the summary with its name, if that may be given, and with what making the name used in any case."""
    current = replace(current, naming_tokens=current.naming_tokens + name.tokens)
    if not may_name(current, source, name):
        return current
    return replace(
        current,
        title=name.title,
        subtitle=name.subtitle,
        tags=name.tags,
        title_source='user' if name.manual else 'generated',
        naming_version=current.naming_version + 1,
        named_revision=current.revision,
    )


def same_revision(current: ConversationSummary | None, source: ConversationSummary) -> ConversationSummary:
    """Return the current summary.

    Raises:
        ConversationConflict: It is gone, or of another revision than `source`.
    """
    if current is None or current.revision != source.revision:
        what = 'was deleted' if current is None else f'is at revision {current.revision}, not {source.revision}'
        raise ConversationConflict(source.id, f'{what}. Load it again.')
    return current


def deleted(current: ConversationSummary | None, source: ConversationSummary) -> Delete:
    """Return what deletes a conversation.

    Raises:
        ConversationConflict: It is gone, or of another revision than `source`, or busy.
    """
    return _of_idle(same_revision(current, source))


def deleted_if_there(current: ConversationSummary | None) -> Delete | None:
    """Return what deletes a conversation at whatever revision it is.

    Raises:
        ConversationConflict: It is busy.
    """
    return None if current is None else _of_idle(current)


def _of_idle(current: ConversationSummary) -> Delete:
    ensure_inactive(current)
    return Delete(current.id)


def expired(
    current: ConversationSummary | None, *, now: datetime, before: datetime, include_unresolved: bool
) -> Delete | None:
    """Return what deletes a conversation that is idle since before then and that nobody works on."""
    if current is None or current.updated_at >= before or is_busy(current, now):
        return None
    return Delete(current.id, idle_since=before, spare_unresolved=not include_unresolved)
