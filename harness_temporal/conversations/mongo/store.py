"""The store: what is asked of the database, and what is made of its answers."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from harness_temporal.conversations.documents import head_key
from harness_temporal.conversations.mongo.documents import HEADS, STORE, containing, saved_before, summary_of
from harness_temporal.conversations.protocol import DEFAULT_LEASE, BaseConversationStore, Head
from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.conversations.rules import Change, Decide, Delete, Put
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.lazy import needed_by
from harness_temporal.media.mongo import MongoMediaStore
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.mongo.documents import Document
from harness_temporal.stores.mongo.messages import Messages, read_whole
from harness_temporal.stores.mongo.patience import PATIENCE, until_done

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient


class MongoConversationStore(BaseConversationStore):
    """Keeps conversations in one database of MongoDB, for any number of processes and machines.

    Give it the database of the `MongoStepStore` that keeps the runs: messages are then stored once for both, and a
    conversation is deleted with its runs in one transaction.

    A conversation that was saved as `running` is busy until its lease ends; `renew` extends it. The clocks of the
    machines have to agree to much less than that.

    For the servers that suit, the rights, the client and the event loop, see `MongoStepStore`.

    Args:
        client: A client, which stays open and whose own settings for reading and writing do not matter.
        db_url: Where the database is instead; the store makes a client of its own.
        database: The name of the database.
        lease: How long a conversation that is saved as `running` is busy.
        timeout: How many seconds one request may take, see `MongoStepStore`.
        media_store: Where large parts are kept; by default in the same database, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt messages with the newest of these; needs the extra `crypto`. See `BaseConversationStore`.
    """

    def __init__(
        self,
        client: AsyncMongoClient[Any] | None = None,
        *,
        db_url: str | None = None,
        database: str = 'harness_temporal',
        lease: timedelta = DEFAULT_LEASE,
        timeout: float = 30.0,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        with needed_by(f'`{STORE}`', 'pymongo', 'mongo'):
            from harness_temporal.conversations.mongo.heads import Heads
            from harness_temporal.databases.mongo import Database
            from harness_temporal.stores.mongo.content import Content
        self._database = Database(client, db_url, database, timeout=timeout)
        super().__init__(
            media_store=MongoMediaStore(database=self._database) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
            lease=lease,
        )
        self._heads = Heads(self._database)
        self._content = Content(self._database, Messages(self._database))

    async def aclose(self) -> None:
        """Close the store, and its client unless it was given. A closed store cannot be used again."""
        await self._database.aclose()

    # --- writing ---

    async def _change(self, conversation_id: str, decide: Decide) -> Change | None:
        await self._heads.make_collections()
        key, version = head_key(conversation_id), b''
        change: Change | None = None

        async def attempt() -> bool:
            nonlocal version, change
            current = await self._heads.current(key)
            if current is not None and current.version == version:
                # The last attempt was written, and its answer was lost.
                return True
            change = decide(None if current is None else current.summary)
            match change:
                case Put():
                    if change.content is not None:
                        await self._content.save([], [change.content.history])
                    version = secrets.token_bytes(16)
                    return await self._heads.put(key, None if current is None else current.version, change, version)
                case Delete():
                    outcome = 'moved' if current is None else await self._heads.delete(key, current.version, change)
                    change = change if outcome == 'deleted' else None
                    return outcome != 'moved'
                case None:
                    return True

        await until_done(attempt, seconds=PATIENCE, store=STORE)
        return change

    # --- reading ---

    async def _read(self, conversation_id: str) -> Head | None:
        query = {'_id': head_key(conversation_id)}
        found = await read_whole(
            lambda: self._database.find(HEADS, query, fields=['metadata', 'head']), self._with_messages
        )
        return found[0] if found else None

    async def _with_messages(self, documents: list[Document]) -> list[Head]:
        histories = await self._content.histories(item['head'] for item in documents if 'head' in item)
        return [Head(summary_of(item), histories[item['head']] if 'head' in item else []) for item in documents]

    async def _list(self, query: str, limit: int, offset: int) -> list[ConversationSummary]:
        order = {'updated_at': -1, '_id': 1}
        found = await self._database.find(
            HEADS, containing(query), fields=['metadata'], sort=order, limit=limit, skip=offset
        )
        return [summary_of(item) for item in found]

    async def _oldest(
        self, *, before: datetime, after: ConversationSummary | None, limit: int
    ) -> list[ConversationSummary]:
        query, order = saved_before(before, after), {'updated_at': 1, '_id': 1}
        found = await self._database.find(HEADS, query, fields=['metadata'], sort=order, limit=limit)
        return [summary_of(item) for item in found]
