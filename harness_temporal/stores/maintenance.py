"""Deleting what is old, and what nothing refers to any more. The seed leaves both to its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from harness_temporal.errors import ConfigurationError
from harness_temporal.media.known import KNOWN_FOR
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.records import RunRecord, utc_now
from harness_temporal.stores.protocol import BaseStepStore

SHORTEST_GRACE: Final = timedelta(seconds=2 * KNOWN_FOR)
"""Longer than any writer waits between putting a blob, or finding a message, and referring to it."""
_PAGE = 200


@dataclass(frozen=True)
class Collected:
    """What a collection deleted."""

    messages: int = 0
    blobs: int = 0
    leftovers: int = 0
    """Pieces of blobs whose writers died."""


class DeletesConversations(Protocol):
    """What maintenance needs of a `ConversationStore`."""

    async def delete_by_id(self, *, conversation_id: str) -> bool:
        """Delete a conversation with the runs that are in the same database, and return whether there was one."""
        ...


class StoreMaintenance:
    """Keeps a store from growing for ever. Any number of processes may do it at once, beside any number of writers.

    Args:
        store: The store.
        grace: How long a message or blob that nothing refers to is spared, at least two hours: its writer may be about
            to refer to it.
        sharing_media: The other stores that use the same media store. What they refer to is spared too. A media store
            belongs to its step stores: blobs that somebody else puts there are collected.
        conversations: Has the heads of the conversations that the store has runs of; `delete_conversation` deletes
            them too. They expire by `ConversationStore.expire`.

    Raises:
        ConfigurationError: `grace` is too short.
    """

    def __init__(
        self,
        store: BaseStepStore,
        *,
        grace: timedelta = timedelta(days=1),
        sharing_media: Sequence[BaseStepStore] = (),
        conversations: DeletesConversations | None = None,
    ) -> None:
        if grace < SHORTEST_GRACE:
            raise ConfigurationError(f'`grace` must be at least {SHORTEST_GRACE}, got {grace}.')
        self.store = store
        self._grace = grace
        self._stores = (store, *sharing_media)
        self._conversations = conversations

    async def expire(self, *, idle_for: timedelta, include_unresolved: bool = False) -> list[str]:
        """Delete runs that nothing happened in for so long, and return their ids.

        The runs of a conversation go together, when the last of them is old enough. A run with a tool effect whose
        outcome is unknown waits for a person, unless `include_unresolved`.

        A run that only waits, for an approval for example, is idle too: let `idle_for` be longer than any run may wait.
        """
        before = utc_now() - idle_for
        deleted: list[str] = []
        looked_at = set[str]()
        last: str | None = None
        while page := await self.store.runs_by_id(started_before=before, after=last, limit=_PAGE):
            last = page[-1].run_id
            for run in page:
                group = await self._with_its_conversation(run, looked_at)
                run_ids = [item.run_id for item in group]
                if not include_unresolved and await self._is_unresolved(run_ids):
                    continue
                if group and await self.store.delete_runs(run_ids, idle_since=before):
                    deleted += run_ids
        return deleted

    async def delete_conversation(self, conversation_id: str) -> list[str]:
        """Delete all runs of a conversation, whatever their age, and return their ids.

        With `conversations`, its head goes with them, in one transaction where both are in one database.

        Raises:
            ConversationConflict: Somebody works on the conversation. Nothing of it is deleted.
        """
        run_ids = await self._runs_of(conversation_id)
        remaining = run_ids
        if self._conversations is not None and await self._conversations.delete_by_id(conversation_id=conversation_id):
            # What is in another database than the head.
            remaining = await self._runs_of(conversation_id)
        if remaining:
            await self.store.delete_runs(remaining)
        return run_ids

    async def collect(self) -> Collected:
        """Delete messages and blobs that nothing refers to."""
        before = utc_now() - self._grace
        messages = await self.store.collect_messages(untouched_since=before)
        media = self.store.media_store
        if not isinstance(media, BaseMediaStore):
            return Collected(messages)
        # Which are old first, what is referred to second: whoever refers to one of them later has put it again.
        candidates = [blob.digest async for blob in media.blobs() if blob.touched_at < before]
        referenced = set[str]()
        for store in self._stores if candidates else ():
            async for digest in store.media_references():
                referenced.add(digest)
        blobs = 0
        for digest in candidates:
            if digest not in referenced:
                blobs += await media.delete(digest, untouched_since=before)
        return Collected(messages, blobs, await media.delete_leftovers(untouched_since=before))

    async def _with_its_conversation(self, run: RunRecord, looked_at: set[str]) -> list[RunRecord]:
        """Return the runs that go together with this one; none if they were looked at before."""
        if run.conversation_id is None:
            return [run]
        if run.conversation_id in looked_at:
            return []
        looked_at.add(run.conversation_id)
        return await self.store.list_runs(conversation_id=run.conversation_id)

    async def _runs_of(self, conversation_id: str) -> list[str]:
        return [run.run_id for run in await self.store.list_runs(conversation_id=conversation_id)]

    async def _is_unresolved(self, run_ids: Sequence[str]) -> bool:
        for run_id in run_ids:
            if await self.store.list_unresolved_tool_effects(run_id=run_id):
                return True
        return False
