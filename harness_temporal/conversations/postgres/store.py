"""The store: what is asked of the database, and what is made of its answers."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harness_temporal.conversations.documents import head_key, load_summary, metadata_columns
from harness_temporal.conversations.protocol import DEFAULT_LEASE, BaseConversationStore, Head
from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.conversations.rules import Change, Decide, Delete, Put
from harness_temporal.databases.postgres.opening import DEFAULT_SCHEMA, open_connections
from harness_temporal.databases.postgres.sql import Row
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import StoreCorruptionError, StoreUnavailableError
from harness_temporal.media.postgres import PostgresMediaStore
from harness_temporal.records import StoredMessage
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.postgres.batch import Content, history_row
from harness_temporal.stores.postgres.beliefs import Beliefs
from harness_temporal.stores.protocol import history_of
from harness_temporal.text import escape

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

STORE: Final = 'PostgresConversationStore'
_ROUNDS = 10
"""How often a change is worked out anew because the head moved. Each time, another writer got ahead."""


class PostgresConversationStore(BaseConversationStore):
    """Keeps conversations in one schema of a PostgreSQL database, for any number of processes and machines.

    Give it the schema of the `PostgresStepStore` that keeps the runs: messages are then stored once for both, and a
    conversation is deleted with its runs in one transaction.

    A conversation that was saved as `running` is busy until its lease ends; `renew` extends it. The clocks of the
    machines have to agree to much less than that.

    For what is said of the schema, event loops, pools and poolers, see `PostgresStepStore`.

    Args:
        dsn: Where the database is; the store makes a pool of its own.
        pool: A pool instead, which stays open and as it is, with whatever codecs it has.
        schema: The schema to use; it is made unless it is there.
        lease: How long a conversation that is saved as `running` is busy.
        max_pool_size: How many connections the store's own pool may open.
        acquire_timeout: How many seconds a call may wait for a connection before it raises `StoreUnavailableError`.
        media_store: Where large parts are kept; by default in the same schema, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt messages with the newest of these; needs the extra `crypto`. See `BaseConversationStore`.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: asyncpg.Pool | None = None,
        schema: str = DEFAULT_SCHEMA,
        lease: timedelta = DEFAULT_LEASE,
        max_pool_size: int = 10,
        acquire_timeout: float = 30.0,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        self._connections, self._queries = open_connections(
            dsn,
            pool,
            schema=schema,
            max_pool_size=max_pool_size,
            acquire_timeout=acquire_timeout,
            store=STORE,
            package='harness_temporal.conversations.postgres',
        )
        self._beliefs = Beliefs()
        super().__init__(
            media_store=PostgresMediaStore(self._connections) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
            lease=lease,
        )

    async def aclose(self) -> None:
        """Close the store, and its pool unless it was given. A closed store cannot be used again."""
        await self._connections.aclose()

    # --- writing ---

    async def _change(self, conversation_id: str, decide: Decide) -> Change | None:
        key = head_key(conversation_id)
        for _ in range(_ROUNDS):
            rows = await self._fetch('get_summary', key)
            version, current = (rows[0]['version'], _summary(rows[0])) if rows else (None, None)
            change = decide(current)
            match change:
                case Put():
                    if await self._put(key, version, change):
                        return change
                case Delete():
                    outcome = await self._delete(key, version, change)
                    if outcome != 'moved':
                        return change if outcome == 'deleted' else None
                case None:
                    return None
        raise StoreUnavailableError(STORE, f'other writers changed the conversation {_ROUNDS} times in a row.')

    async def _put(self, key: bytes, expected: str | None, put: Put) -> bool:
        """Write a head and return true, or false if there is another version than the expected one."""
        done = await self._beliefs.checked(partial(self._send, key, expected, put))
        if done and put.content is not None:
            self._beliefs.saw_history(put.content.history)
        return done

    async def _send(self, key: bytes, expected: str | None, put: Put) -> bool:
        content = Content()
        row: dict[str, Any] = {
            **metadata_columns(put.summary),
            'version': secrets.token_hex(16),
            'updated_at': put.summary.updated_at.isoformat(),
        }
        if put.content is not None:
            history = put.content.history
            row |= history_row(history, self._beliefs.known_length(history), content)
            row['message_text'] = put.content.text
        document = json.dumps(row, ensure_ascii=False)
        [answer] = await self._fetch('put_conversation', key, expected, document, bytes(content.data))
        return answer['done']

    async def _delete(self, key: bytes, expected: str | None, delete: Delete) -> str:
        conversation = escape(delete.conversation_id)
        [answer] = await self._fetch(
            'delete_conversation', key, expected, conversation, delete.idle_since, delete.spare_unresolved
        )
        return answer['outcome']

    # --- reading ---

    async def _read(self, conversation_id: str) -> Head | None:
        rows = await self._fetch('read_conversation', head_key(conversation_id))
        links: dict[bytes, tuple[bytes | None, StoredMessage]] = {}
        for row in rows:
            if row['link'] is not None:
                if row['body'] is None:
                    raise StoreCorruptionError(STORE, f'the message {row["message"].hex()} is missing.')
                links[row['link']] = row['parent'], StoredMessage(row['message'], row['body'])
        heads = [row for row in rows if row['metadata'] is not None]
        return Head(_summary(heads[0]), history_of(links, heads[0]['head'], STORE)) if heads else None

    async def _list(self, query: str, limit: int, offset: int) -> list[ConversationSummary]:
        return [_summary(row) for row in await self._fetch('list_conversations', query, limit, offset)]

    async def _oldest(
        self, *, before: datetime, after: ConversationSummary | None, limit: int
    ) -> list[ConversationSummary]:
        last = (None, None) if after is None else (after.updated_at, head_key(after.id))
        return [_summary(row) for row in await self._fetch('oldest_conversations', before, *last, limit)]

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        return await self._connections.fetch(self._queries[query], *arguments)


def _summary(row: Row) -> ConversationSummary:
    return load_summary(row['metadata'], STORE)
