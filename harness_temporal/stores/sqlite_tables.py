"""What the stores of one SQLite database share of its tables: histories, and all that a run has."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harness_temporal.databases.sqlite import Schema
from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.records import EncodedHistory, StoredMessage, to_microseconds
from harness_temporal.stores.protocol import history_of

HISTORY_SCHEMAS: Final = (Schema('steps'), Schema('conversations'))
"""Both are in every database: what collects messages has to see all that refers to them."""


def keep_history(cursor: sqlite3.Cursor, history: EncodedHistory, store: str) -> None:
    """Store what is new of a history. A link that is here has all its parents here, so the search ends at it.

    Raises:
        HistoryMissingError: It extends a history that is not here.
    """
    known = len(history.links)
    while known and not _has_link(cursor, history.links[known - 1].digest):
        known -= 1
    if not known and history.base is not None and not _has_link(cursor, history.base):
        raise HistoryMissingError(store, f'the history {history.base.hex()} is not here.')
    for link in history.links[known:]:
        cursor.execute(_INSERT_MESSAGE, (link.message.digest, link.message.body))
        cursor.execute(_INSERT_LINK, (link.digest, link.parent, link.message.digest, link.length))


class Histories:
    """The histories that end at some links, read at once.

    Args:
        cursor: Of the transaction.
        heads: A query that gives the links.
        parameters: What the query needs.
        store: Who reads, for errors.

    Raises:
        StoreCorruptionError: A message is missing.
    """

    def __init__(self, cursor: sqlite3.Cursor, heads: str, parameters: Sequence[object], store: str) -> None:
        self._store = store
        self._links: dict[bytes, tuple[bytes | None, StoredMessage]] = {}
        for digest, parent, message, body in cursor.execute(_HISTORIES.format(heads), parameters):
            if body is None:
                raise StoreCorruptionError(store, f'the message {message.hex()} is missing.')
            self._links[digest] = parent, StoredMessage(message, body)

    def of(self, head: bytes | None) -> list[StoredMessage]:
        """Return the messages of one of them, in order.

        Raises:
            StoreCorruptionError: A link is missing.
        """
        return history_of(self._links, head, self._store)


def delete_runs(cursor: sqlite3.Cursor, run_ids: Sequence[str], idle_since: datetime | None) -> bool:
    """Delete all that these runs have. See `BaseStepStore.delete_runs`."""
    if idle_since is not None:
        since = to_microseconds(idle_since)
        for run_id in run_ids:
            if cursor.execute(_IS_ACTIVE, [run_id, since] * 4).fetchone()[0]:
                return False
    for run_id in run_ids:
        for table in _OF_A_RUN:
            cursor.execute(f'DELETE FROM {table} WHERE run_id = ?', (run_id,))
    return True


def collect_messages(cursor: sqlite3.Cursor) -> int:
    """Delete the links and messages that nothing refers to, and return how many links it was."""
    count = cursor.execute(_COLLECT_LINKS).rowcount
    if count:
        cursor.execute(_COLLECT_MESSAGES)
    return count


def _has_link(cursor: sqlite3.Cursor, digest: bytes) -> bool:
    return cursor.execute('SELECT 1 FROM history_links WHERE digest = ?', (digest,)).fetchone() is not None


_INSERT_MESSAGE = 'INSERT OR IGNORE INTO messages (digest, body) VALUES (?, ?)'
_INSERT_LINK = 'INSERT INTO history_links (digest, parent, message, length) VALUES (?, ?, ?, ?)'

# Every link of the chosen histories, once: UNION drops those that the walk has met already.
_HISTORIES = """
WITH RECURSIVE walk (digest, parent, message) AS (
  SELECT digest, parent, message FROM history_links WHERE digest IN ({})
  UNION
  SELECT link.digest, link.parent, link.message FROM walk JOIN history_links AS link ON link.digest = walk.parent
)
SELECT walk.digest, walk.parent, walk.message, CAST(messages.body AS BLOB)
FROM walk LEFT JOIN messages ON messages.digest = walk.message
"""

_OF_A_RUN = (
    'runs',
    'run_sequences',
    'events',
    'snapshots',
    'snapshot_idempotency_keys',
    'tool_effects',
    'model_responses',
)

_IS_ACTIVE = """
SELECT EXISTS (SELECT 1 FROM runs WHERE run_id = ? AND started_at >= ?)
  OR EXISTS (SELECT 1 FROM events WHERE run_id = ? AND timestamp >= ?)
  OR EXISTS (SELECT 1 FROM snapshots WHERE run_id = ? AND timestamp >= ?)
  OR EXISTS (SELECT 1 FROM tool_effects WHERE run_id = ? AND coalesce(ended_at, started_at) >= ?)
"""

_COLLECT_LINKS = """
DELETE FROM history_links WHERE digest NOT IN (
  WITH RECURSIVE used (digest, parent) AS (
    SELECT digest, parent FROM history_links
    WHERE digest IN (SELECT head FROM snapshots UNION ALL SELECT head FROM conversation_heads)
    UNION
    SELECT link.digest, link.parent FROM used JOIN history_links AS link ON link.digest = used.parent
  )
  SELECT digest FROM used
)
"""
_COLLECT_MESSAGES = 'DELETE FROM messages WHERE digest NOT IN (SELECT message FROM history_links)'
