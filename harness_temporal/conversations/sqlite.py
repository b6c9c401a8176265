"""Conversations in one SQLite file, beside the runs of a `SqliteStepStore` on the same file."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

from harness_temporal.conversations.documents import head_key, load_summary, metadata_columns
from harness_temporal.conversations.protocol import BaseConversationStore, Head
from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.conversations.rules import Change, Decide, Delete, Put
from harness_temporal.databases.sqlite import SqliteDatabase
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.media.sqlite import SqliteMediaStore
from harness_temporal.records import to_microseconds
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.sqlite_tables import HISTORY_SCHEMAS, Histories, delete_runs, keep_history
from harness_temporal.text import escape

_STORE = 'SqliteConversationStore'


class SqliteConversationStore(BaseConversationStore):
    """Keeps conversations in one SQLite file, for any number of processes of one machine.

    Give it the file of the `SqliteStepStore` that keeps the runs: messages are then stored once for both, and a
    conversation is deleted with its runs in one transaction. A new file is readable by its owner only. What is
    deleted may stay readable in free pages of the file.

    A conversation that was saved as `running` is busy while the process lives that saved it. That is no lease: do not
    share the file between hosts.

    For what is said of threads, a given connection and `':memory:'`, see `SqliteStepStore`.

    Args:
        database: The file, or `':memory:'`.
        connection: An open connection instead, made with `check_same_thread=False`.
        media_store: Where large parts are kept; by default in the same database, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt messages with the newest of these; needs the extra `crypto`. See `BaseConversationStore`.
    """

    def __init__(
        self,
        database: str | Path | None = None,
        *,
        connection: sqlite3.Connection | None = None,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        self._database = SqliteDatabase(database, connection, *HISTORY_SCHEMAS)
        super().__init__(
            media_store=SqliteMediaStore(self._database) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
        )

    async def aclose(self) -> None:
        """Close the store, and its connection unless it was given. A closed store cannot be used again."""
        await self._database.aclose()

    async def _change(self, conversation_id: str, decide: Decide) -> Change | None:
        key, done = head_key(conversation_id), None

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            nonlocal done
            found = _summaries(cursor, encoding, 'key = ?', key)
            current = found[0] if found else None
            change = decide(current)
            match change:
                case Put():
                    _put(cursor, key, change, is_new=current is None)
                case Delete():
                    if not _delete(cursor, encoding, key, change):
                        return
                case None:
                    return
            done = change

        await self._database.write(work, durable=True)
        return done

    async def _read(self, conversation_id: str) -> Head | None:
        key = head_key(conversation_id)

        def work(cursor: sqlite3.Cursor, encoding: str) -> Head | None:
            found = _summaries(cursor, encoding, 'key = ?', key)
            if not found:
                return None
            (head,) = cursor.execute('SELECT head FROM conversation_heads WHERE key = ?', (key,)).fetchone()
            return Head(found[0], Histories(cursor, 'SELECT ?', (head,), _STORE).of(head))

        return await self._database.read(work)

    async def _list(self, query: str, limit: int, offset: int) -> list[ConversationSummary]:
        condition, parameters = 'TRUE', ()
        if query:
            condition, parameters = 'instr(metadata_text, ?) > 0 OR instr(message_text, ?) > 0', (query, query)
        return await self._find(
            f'{condition} ORDER BY updated_at DESC, key LIMIT ? OFFSET ?', *parameters, limit, offset
        )

    async def _oldest(
        self, *, before: datetime, after: ConversationSummary | None, limit: int
    ) -> list[ConversationSummary]:
        last = (0, b'') if after is None else (to_microseconds(after.updated_at), head_key(after.id))
        condition = 'updated_at < ? AND (updated_at, key) > (?, ?) ORDER BY updated_at, key LIMIT ?'
        return await self._find(condition, to_microseconds(before), *last, limit)

    async def _find(self, condition: str, *parameters: object) -> list[ConversationSummary]:
        return await self._database.read(lambda cursor, encoding: _summaries(cursor, encoding, condition, *parameters))


def _summaries(cursor: sqlite3.Cursor, encoding: str, condition: str, *parameters: object) -> list[ConversationSummary]:
    # As bytes, so that text does not depend on the `text_factory` of the connection.
    query = f'SELECT CAST(metadata AS BLOB) FROM conversation_heads WHERE {condition}'
    return [load_summary(row[0].decode(encoding), _STORE) for row in cursor.execute(query, parameters)]


def _put(cursor: sqlite3.Cursor, key: bytes, put: Put, *, is_new: bool) -> None:
    columns: dict[str, object] = {
        **metadata_columns(put.summary),
        'updated_at': to_microseconds(put.summary.updated_at),
    }
    if put.content is not None:
        history = put.content.history
        keep_history(cursor, history, _STORE)
        columns |= {'head': history.head, 'length': history.length, 'message_text': put.content.text}
    if is_new:
        columns['key'] = key
        places = ', '.join('?' * len(columns))
        cursor.execute(f'INSERT INTO conversation_heads ({", ".join(columns)}) VALUES ({places})', [*columns.values()])
    else:
        changes = ', '.join(f'{column} = ?' for column in columns)
        cursor.execute(f'UPDATE conversation_heads SET {changes} WHERE key = ?', [*columns.values(), key])


def _delete(cursor: sqlite3.Cursor, encoding: str, key: bytes, delete: Delete) -> bool:
    conversation = (escape(delete.conversation_id),)
    if delete.spare_unresolved and cursor.execute(_IS_UNRESOLVED, conversation).fetchone()[0]:
        return False
    run_ids = [row[0].decode(encoding) for row in cursor.execute(_RUNS, conversation)]
    if not delete_runs(cursor, run_ids, delete.idle_since):
        return False
    cursor.execute('DELETE FROM conversation_heads WHERE key = ?', (key,))
    return True


_RUNS = 'SELECT CAST(run_id AS BLOB) FROM runs WHERE conversation_id = ?'
_IS_UNRESOLVED = """
SELECT EXISTS (
  SELECT 1 FROM runs JOIN tool_effects ON tool_effects.run_id = runs.run_id
  WHERE runs.conversation_id = ? AND tool_effects.status = 'started'
)
"""
