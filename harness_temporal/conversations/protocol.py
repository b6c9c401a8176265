"""The contract of conversation stores.

`ConversationStore` is what the rest of the package uses. A backend derives from `BaseConversationStore` and implements
its abstract methods; `harness_temporal.testing.ConversationStoreConformance` says whether it meets this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from pydantic_ai.messages import ModelMessage

from harness_temporal.conversations import rules
from harness_temporal.conversations.busy import marked
from harness_temporal.conversations.documents import check_summary
from harness_temporal.conversations.records import ConversationSummary, SavedConversation
from harness_temporal.conversations.rules import Change, Content, Decide, Name, Put
from harness_temporal.conversations.text import LONGEST_QUERY, message_text, searchable
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import ConfigurationError, ConversationNotFoundError
from harness_temporal.history import decode_message, encode_history
from harness_temporal.media.protocol import MediaStore
from harness_temporal.records import EncodedHistory, StoredMessage, utc_now
from harness_temporal.stores.externalizer import Externalizer

DEFAULT_LEASE: Final = timedelta(minutes=2)
"""How long a conversation that is saved as `running` in a shared store is busy, unless its lease is renewed."""
_LARGEST = 2**31 - 1
"""The largest limit and offset that every database counts to."""
_PAGE = 200


@runtime_checkable
class ConversationStore(Protocol):
    """Keeps the heads of conversations: the whole history of each as it stands, and its metadata.

    Every method may raise `StoreUnavailableError` (try again later) or another `StoreError` (do not). Metadata whose
    schema version is unknown raises `StoreSchemaError`.
    """

    async def save(self, *, summary: ConversationSummary, messages: Sequence[ModelMessage]) -> ConversationSummary:
        """Write the next revision of a conversation, and return its summary.

        The name stays what it is in the store. A summary whose `outcome` is `running` marks the conversation as busy,
        any other ends that.

        Raises:
            ConversationConflict: `summary` is not of the current revision, or the conversation was deleted.
            NotStorableError: A value would not read back as it was given.
        """
        ...

    async def get(self, *, conversation_id: str) -> SavedConversation:
        """Return a conversation.

        Raises:
            ConversationNotFoundError: There is none.
        """
        ...

    async def listing(self, *, query: str = '', limit: int = 200, offset: int = 0) -> list[ConversationSummary]:
        """Return summaries, the conversation that was saved last first. No messages are loaded.

        With a `query`, those that have it in what the user and the assistant said, in the title, the subtitle, the
        tags, the workspace, the name of the model or the id. Case does not matter, as Unicode folds it. Of a very long
        conversation the newest three million characters are searched.

        Raises:
            ConfigurationError: `limit` is less than 1, `offset` less than 0, or the query longer than 1,000 characters.
        """
        ...

    async def name(
        self,
        *,
        source: ConversationSummary,
        title: str,
        subtitle: str = '',
        tags: Sequence[str] = (),
        manual: bool = False,
        tokens: int = 0,
    ) -> bool:
        """Name a conversation, and return whether it was.

        It is not if the messages or the name changed since `source`, if it is gone, or if a person named it and this
        is not `manual`. The `tokens` that making the name used are added to `naming_tokens` in any case, unless it is
        gone. `updated_at` and the revision stay.

        Raises:
            NotStorableError: The title is empty, or there are more than four tags.
        """
        ...

    async def renew(self, *, source: ConversationSummary) -> ConversationSummary:
        """Keep a conversation that was saved as `running` busy for another lease, and return its summary.

        Raises:
            ConversationConflict: It is gone, or of another revision than `source`.
        """
        ...

    async def delete(self, *, source: ConversationSummary) -> None:
        """Delete a conversation with all records of its runs, in one transaction. Blobs stay: others may have them.

        Raises:
            ConversationConflict: It is gone, of another revision than `source`, or busy.
        """
        ...

    async def delete_by_id(self, *, conversation_id: str) -> bool:
        """Delete a conversation as `delete` does, whatever its revision, and return whether there was one.

        Raises:
            ConversationConflict: It is busy.
        """
        ...

    async def expire(self, *, idle_for: timedelta, include_unresolved: bool = False) -> list[str]:
        """Delete the conversations that nothing happened in for so long, with their runs, and return their ids.

        Those that are busy stay, and those with a tool effect whose outcome is unknown, unless `include_unresolved`.
        Nothing expires by itself.
        """
        ...

    async def aclose(self) -> None:
        """Release what the store itself opened. A second call does nothing."""
        ...


@dataclass(frozen=True)
class Head:
    """A conversation as a backend reads it, with the messages as they are stored, in order."""

    summary: ConversationSummary
    messages: Sequence[StoredMessage]


class BaseConversationStore(ABC):
    """What every backend shares: checking, encoding, decoding and the rules. Holds no query."""

    def __init__(
        self,
        *,
        media_store: MediaStore | None,
        media_threshold_bytes: int,
        keys: KeyRing | None = None,
        lease: timedelta | None = None,
    ) -> None:
        """Check the settings that all stores have. Without a lease, busy is what a live process of this machine has.

        With keys, messages are encrypted, and their text is not kept for searches: `listing` then finds a conversation
        by its title, subtitle, tags, workspace, model and id alone, which are not encrypted.
        """
        if lease is not None and lease <= timedelta():
            raise ConfigurationError(f'`lease` must be more than 0, got {lease}.')
        self._lease = lease
        self._externalizer = Externalizer(media_store, media_threshold_bytes, keys)

    @property
    def media_store(self) -> MediaStore | None:
        """Where large parts are kept."""
        return self._externalizer.media_store

    # --- for a backend to implement ---

    @abstractmethod
    async def _change(self, conversation_id: str, decide: Decide) -> Change | None:
        """Do in one transaction what `decide` says of the head as it is then.

        Returns:
            What was done; `None` if there was nothing to do, or a `Delete` had a reason not to.
        """

    @abstractmethod
    async def _read(self, conversation_id: str) -> Head | None:
        """Return a head as it is at one moment."""

    @abstractmethod
    async def _list(self, query: str, limit: int, offset: int) -> list[ConversationSummary]:
        """Return the summaries of the heads with these characters in a searched text, the latest first."""

    @abstractmethod
    async def _oldest(
        self, *, before: datetime, after: ConversationSummary | None, limit: int
    ) -> list[ConversationSummary]:
        """Return the next summaries of heads that were saved before then, by that time, after the one of `after`."""

    async def aclose(self) -> None:  # noqa: B027  # some stores have nothing to release
        """Release what the store itself opened."""

    # --- shared ---

    async def save(self, *, summary: ConversationSummary, messages: Sequence[ModelMessage]) -> ConversationSummary:
        """Write the next revision of a conversation. See `ConversationStore.save`."""
        check_summary(summary)
        messages = list(messages)
        text, now = '' if self._externalizer.encrypts else message_text(messages), utc_now()
        given = marked(summary, now, self._lease)

        async def write(histories: Sequence[EncodedHistory]) -> Change | None:
            [history] = histories

            def decide(current: ConversationSummary | None) -> Put:
                return Put(rules.saved(current, given, messages, now), Content(history, text))

            return await self._change(summary.id, decide)

        return _written(await self._externalizer.save([encode_history(messages)], write))

    async def get(self, *, conversation_id: str) -> SavedConversation:
        """Return a conversation. See `ConversationStore.get`."""
        head = await self._read(conversation_id)
        if head is None:
            raise ConversationNotFoundError(conversation_id)
        owner = f'conversation {conversation_id[:220]!r}'
        messages = [await self._externalizer.restore_message(message, owner) for message in head.messages]
        return SavedConversation(summary=head.summary, messages=[decode_message(message.body) for message in messages])

    async def listing(self, *, query: str = '', limit: int = 200, offset: int = 0) -> list[ConversationSummary]:
        """Return summaries, the latest first. See `ConversationStore.listing`."""
        if limit < 1 or offset < 0:
            raise ConfigurationError(f'`limit` must be at least 1 and `offset` at least 0, got {limit} and {offset}.')
        if len(query) > LONGEST_QUERY:
            raise ConfigurationError(f'`query` has {len(query)} characters, at most {LONGEST_QUERY} are allowed.')
        return await self._list(searchable(query), min(limit, _LARGEST), min(offset, _LARGEST))

    async def name(
        self,
        *,
        source: ConversationSummary,
        title: str,
        subtitle: str = '',
        tags: Sequence[str] = (),
        manual: bool = False,
        tokens: int = 0,
    ) -> bool:
        """Name a conversation. See `ConversationStore.name`."""
        name = Name(title, subtitle, tuple(tags), manual, tokens)
        check_summary(replace(source, title=title, subtitle=subtitle, tags=name.tags))
        is_named = False

        def decide(current: ConversationSummary | None) -> Put | None:
            nonlocal is_named
            is_named = current is not None and rules.may_name(current, source, name)
            updated = None if current is None else rules.named(current, source, name)
            return None if updated is None or updated == current else Put(updated)

        await self._change(source.id, decide)
        return is_named

    async def renew(self, *, source: ConversationSummary) -> ConversationSummary:
        """Keep a conversation busy for another lease. See `ConversationStore.renew`."""
        now = utc_now()

        def decide(current: ConversationSummary | None) -> Put:
            return Put(marked(rules.same_revision(current, source), now, self._lease))

        return _written(await self._change(source.id, decide))

    async def delete(self, *, source: ConversationSummary) -> None:
        """Delete a conversation with its runs. See `ConversationStore.delete`."""
        await self._change(source.id, lambda current: rules.deleted(current, source))

    async def delete_by_id(self, *, conversation_id: str) -> bool:
        """Delete a conversation at any revision. See `ConversationStore.delete_by_id`."""
        return await self._change(conversation_id, rules.deleted_if_there) is not None

    async def expire(self, *, idle_for: timedelta, include_unresolved: bool = False) -> list[str]:
        """Delete what is old. See `ConversationStore.expire`."""
        now = utc_now()
        before = now - idle_for
        gone: list[str] = []
        last: ConversationSummary | None = None

        def decide(current: ConversationSummary | None) -> rules.Delete | None:
            return rules.expired(current, now=now, before=before, include_unresolved=include_unresolved)

        while page := await self._oldest(before=before, after=last, limit=_PAGE):
            last = page[-1]
            for summary in page:
                if await self._change(summary.id, decide) is not None:
                    gone.append(summary.id)
        return gone


def _written(change: Change | None) -> ConversationSummary:
    assert isinstance(change, Put)
    return change.summary
