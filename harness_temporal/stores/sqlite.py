"""A store in one SQLite file, or in a connection that it shares with its application."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from harness_temporal.databases.sqlite import SqliteDatabase
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import DuplicateRunError, StoreCorruptionError
from harness_temporal.ledger import advance
from harness_temporal.media.sqlite import SqliteMediaStore
from harness_temporal.records import (
    ContinuableSnapshot,
    EncodedSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
    from_microseconds,
    to_microseconds,
)
from harness_temporal.stores.external import digests_in
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow
from harness_temporal.stores.sqlite_tables import (
    HISTORY_SCHEMAS,
    Histories,
    collect_messages,
    delete_runs,
    keep_history,
)
from harness_temporal.text import escape, unescape

T = TypeVar('T')
_STORE = 'SqliteStepStore'
_LARGEST = 2**63 - 1


class SqliteStepStore(BaseStepStore):
    """Keeps everything in one SQLite database. Nothing touches the disk until the first use.

    One store may serve many threads and event loops, and many processes may share the file. The work is done in
    worker threads, one transaction at a time; commits that wait at the same time share one. A call that is cancelled
    while its thread works may have been written, but never in part.

    Batches with a tool effect are on disk when `commit` returns, whatever happens to the machine. The others survive
    the death of the process; the last of them may be lost with the machine's power.

    A given connection stays as it is: the store changes no setting of it and does not close it. Its own settings decide
    on durability and waiting; those that the store uses itself are `journal_mode=WAL`, `synchronous=FULL` and a
    `timeout` of 30 seconds. While a transaction is open on it, what the store writes is part of that transaction (as a
    savepoint) and durable only with its commit. Nothing else may use the connection while a method of the store runs,
    and only one store may have it.

    Args:
        database: The file, or `':memory:'`. A new file is readable by its owner only.
        connection: An open connection instead, made with `check_same_thread=False`.
        max_snapshots_per_run: How many snapshots to keep per run; `None` keeps all.
        media_store: Where large parts are kept; by default in the same database, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt content with the newest of these; needs the extra `crypto`. See `BaseStepStore` for what that is.
    """

    def __init__(
        self,
        database: str | Path | None = None,
        *,
        connection: sqlite3.Connection | None = None,
        max_snapshots_per_run: int | None = None,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        self._database = SqliteDatabase(database, connection, *HISTORY_SCHEMAS)
        super().__init__(
            max_snapshots_per_run=max_snapshots_per_run,
            media_store=SqliteMediaStore(self._database) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
        )

    async def aclose(self) -> None:
        """Close the store, and its connection unless it was given. A closed store cannot be used again."""
        await self._database.aclose()

    async def _write(self, batch: PreparedBatch) -> None:
        # A power loss that took back a tool's start would let the tool run twice; any other loss is a step back.
        await self._database.write(
            lambda cursor, encoding: _Session(cursor, encoding).write(batch, self.max_snapshots_per_run),
            durable=bool(batch.effects),
        )

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        return _first(await self._find(_RUNS, 'run_id = ?', run_id))

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        filters = {'parent_run_id = ?': parent_run_id, 'conversation_id = ?': conversation_id}
        given = {condition: value for condition, value in filters.items() if value is not None}
        condition = f'{" AND ".join(given) or "TRUE"} ORDER BY started_at DESC, registration_number DESC LIMIT ?'
        return (await self._find(_RUNS, condition, *given.values(), _bounded(limit)))[::-1]

    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        condition = 'run_id = ? AND seq > ? ORDER BY seq LIMIT ?'
        return await self._find(_EVENTS, condition, run_id, _bounded(after), _bounded(limit))

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        state = '' if include_interrupted else "AND state = 'complete'"
        condition = f'run_id = ? {state} ORDER BY seq DESC LIMIT ?'
        return await self._database.read(
            lambda cursor, encoding: _Session(cursor, encoding).snapshots(condition, run_id, _bounded(newest))
        )

    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        condition = 'run_id = ? AND tool_call_id = ? ORDER BY seq DESC LIMIT 1'
        return _first(await self._find(_EFFECTS, condition, run_id, tool_call_id))

    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        status = "AND status = 'started'" if unresolved else ''
        return await self._find(_EFFECTS, f'run_id = ? {status} ORDER BY seq', run_id)

    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        return _first(await self._find(_RESPONSES, 'run_id = ? AND key = ?', run_id, key))

    # --- retention ---

    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        condition = 'run_id > ? AND started_at < ? ORDER BY run_id LIMIT ?'
        return await self._find(_RUNS, condition, after or '', started_before, limit)

    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        done = False

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            nonlocal done
            done = delete_runs(cursor, run_ids, idle_since)

        await self._database.write(work, durable=True)
        return done

    async def collect_messages(self, *, untouched_since: datetime) -> int:
        """Delete messages that no snapshot has, however young: nobody writes meanwhile.

        It goes through all links in one transaction, because indexes by which fewer would do cost more at every commit.
        """
        count = 0

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            nonlocal count
            count = collect_messages(cursor)

        await self._database.write(work, durable=False)
        return count

    async def media_references(self) -> AsyncGenerator[str]:
        for table, column in (('messages', 'body'), ('tool_effects', 'value'), ('model_responses', 'body')):
            query, last = _EXTERNAL.format(table=table, column=column), 0
            while rows := await self._database.read(
                lambda cursor, encoding, query=query, last=last: cursor.execute(query, (last,)).fetchall()
            ):
                for _, body in rows:
                    for digest in digests_in(body):
                        yield digest
                last = rows[-1][0]

    async def _find(self, table: _Table[T], condition: str, *parameters: object) -> list[T]:
        return await self._database.read(
            lambda cursor, encoding: _Session(cursor, encoding).find(table, condition, *parameters)
        )


class _Session:
    """What is read and written in one transaction."""

    def __init__(self, cursor: sqlite3.Cursor, encoding: str) -> None:
        self._cursor = cursor
        self._encoding = encoding

    def find(self, table: _Table[T], condition: str, *parameters: object) -> list[T]:
        rows = self._execute(f'SELECT {table.selection} FROM {table.name} WHERE {condition}', *parameters)
        return [table.load(row, self._encoding) for row in rows]

    def snapshots(self, condition: str, *parameters: object) -> list[SnapshotRow]:
        """Return in ascending order the snapshots that `condition` gives in descending order."""
        heads = f'SELECT head FROM snapshots WHERE {condition}'
        histories = Histories(self._cursor, heads, [_stored(value) for value in parameters], _STORE)
        rows = self.find(_SNAPSHOTS, condition, *parameters)
        return [SnapshotRow(snapshot, histories.of(head)) for snapshot, head in reversed(rows)]

    def write(self, batch: PreparedBatch, max_snapshots_per_run: int | None) -> None:
        for run in batch.runs:
            self._register(run)
        for effect in batch.effects:
            self._advance(effect)
        for event in batch.events:
            self._append(event)
        for snapshot in batch.snapshots:
            self._save(snapshot, max_snapshots_per_run)
        for response in batch.responses:
            self._insert(_RESPONSES, vars(response), verb='REPLACE')

    def _register(self, run: RunRecord) -> None:
        known = _first(self.find(_RUNS, 'run_id = ?', run.run_id))
        if known is None:
            self._insert(_RUNS, vars(run))
        elif run.registration_id is None or run.registration_id != known.registration_id:
            raise DuplicateRunError(run.run_id)

    def _advance(self, effect: ToolEffectRecord) -> None:
        condition = 'run_id = ? AND ledger_key = ?'
        current = _first(self.find(_EFFECTS, condition, effect.run_id, effect.ledger_key))
        result = advance(current, effect)
        if result is not None:
            seq = current.seq if current else self._number(effect.run_id)
            self._insert(_EFFECTS, {**vars(result), 'ledger_key': result.ledger_key, 'seq': seq}, verb='REPLACE')

    def _append(self, event: StepEvent) -> None:
        key = event.idempotency_key
        if key is None or not self._has('events', 'run_id = ? AND idempotency_key = ?', event.run_id, key):
            self._insert(_EVENTS, {**vars(event), 'seq': self._number(event.run_id)})

    def _save(self, encoded: EncodedSnapshot, max_snapshots_per_run: int | None) -> None:
        snapshot, history = encoded.snapshot, encoded.history
        run_id, key = snapshot.run_id, snapshot.idempotency_key
        if key is not None and not self._execute(_INSERT_KEY, run_id, key).rowcount:
            return
        keep_history(self._cursor, history, _STORE)
        seq = self._number(run_id)
        self._insert(_SNAPSHOTS, {**vars(snapshot), 'seq': seq, 'head': history.head, 'length': history.length})
        if max_snapshots_per_run is not None:
            self._execute(_PRUNE, run_id, run_id, _bounded(max_snapshots_per_run - 1), run_id)

    def _number(self, run_id: str) -> int:
        """Take the run's next number."""
        self._execute(_COUNT, run_id)
        return self._execute('SELECT next_seq - 1 FROM run_sequences WHERE run_id = ?', run_id).fetchone()[0]

    def _has(self, table: str, condition: str, *parameters: object) -> bool:
        return self._execute(f'SELECT 1 FROM {table} WHERE {condition}', *parameters).fetchone() is not None

    def _insert(self, table: _Table[Any], values: Mapping[str, object], *, verb: str = 'INSERT') -> None:
        self._execute(f'{verb} INTO {table.name} {table.row}', *(values[column] for column in table.columns))

    def _execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return self._cursor.execute(sql, [_stored(value) for value in parameters])


# --- statements ---

_INSERT_KEY = 'INSERT OR IGNORE INTO snapshot_idempotency_keys (run_id, idempotency_key) VALUES (?, ?)'

# Not with RETURNING, which SQLite has only since 3.35.
_COUNT = """
INSERT INTO run_sequences (run_id, next_seq) VALUES (?, 2)
ON CONFLICT (run_id) DO UPDATE SET next_seq = next_seq + 1
"""

# The newest of all is one of the newest N. Where a subquery finds nothing, nothing is pruned or spared by it.
_PRUNE = """
DELETE FROM snapshots
WHERE run_id = ?
  AND seq < (SELECT seq FROM snapshots WHERE run_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
  AND seq IS NOT (SELECT seq FROM snapshots WHERE run_id = ? AND state = 'complete' ORDER BY seq DESC LIMIT 1)
"""

# Whatever starts with this byte is not the body itself (`stores.external`).
_EXTERNAL = """
SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE rowid > ? AND substr({column}, 1, 1) = x'02'
ORDER BY rowid LIMIT 100
"""


# --- rows ---

_NUMBERS = frozenset({'seq', 'step_index', 'attempts', 'length'})
_TIMES = frozenset({'started_at', 'ended_at', 'timestamp'})
_BYTES = frozenset({'head', 'value', 'body'})


@dataclass(frozen=True)
class _Table(Generic[T]):
    """A table whose columns have the names of a record's fields."""

    name: str
    names: str
    make: Callable[..., T]

    @property
    def columns(self) -> list[str]:
        return self.names.split()

    @property
    def row(self) -> str:
        return f'({", ".join(self.columns)}) VALUES ({", ".join("?" * len(self.columns))})'

    @property
    def selection(self) -> str:
        # As bytes, so that text does not depend on the `text_factory` of the connection.
        plain = _NUMBERS | _TIMES
        return ', '.join(column if column in plain else f'CAST({column} AS BLOB)' for column in self.columns)

    def load(self, row: Sequence[Any], encoding: str) -> T:
        try:
            pairs = zip(self.columns, row, strict=True)
            return self.make(**{column: _loaded(column, value, encoding) for column, value in pairs})
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise StoreCorruptionError(_STORE, f'a row of {self.name!r} cannot be read: {error}') from error


def _effect(*, ledger_key: str, **fields: Any) -> ToolEffectRecord:
    return ToolEffectRecord(**fields)


def _snapshot(*, head: bytes | None, length: int, **fields: Any) -> tuple[ContinuableSnapshot, bytes | None]:
    return ContinuableSnapshot(messages=[], **fields), head


_RUNS = _Table('runs', 'run_id conversation_id parent_run_id agent_name metadata started_at registration_id', RunRecord)
_EVENTS = _Table(
    'events',
    'run_id seq kind step_index timestamp conversation_id parent_run_id agent_name'
    ' tool_call_id tool_name error metadata idempotency_key',
    StepEvent,
)
_SNAPSHOTS = _Table(
    'snapshots',
    'run_id seq step_index state timestamp conversation_id parent_run_id agent_name idempotency_key head length',
    _snapshot,
)
_EFFECTS = _Table(
    'tool_effects',
    'run_id ledger_key seq tool_call_id tool_name call_key status step_index attempts holder started_at ended_at'
    ' idempotency_key effect_summary outcome value error',
    _effect,
)
_RESPONSES = _Table('model_responses', 'run_id key body', ModelResponseRecord)


def _stored(value: object) -> object:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, datetime):
        return to_microseconds(value)
    if isinstance(value, dict):
        metadata = cast(dict[str, str], value)
        return json.dumps({escape(key): escape(text) for key, text in metadata.items()}, ensure_ascii=False)
    return value


def _loaded(column: str, stored: Any, encoding: str) -> Any:
    if stored is None or column in _NUMBERS | _BYTES:
        return stored
    if column in _TIMES:
        return from_microseconds(stored)
    text = stored.decode(encoding)
    if column == 'metadata':
        return {unescape(key): unescape(value) for key, value in json.loads(text).items()}
    return unescape(text)


def _first(records: Sequence[T]) -> T | None:
    return records[0] if records else None


def _bounded(limit: int | None) -> int:
    """Return a number that SQLite can count to, and that means 'all' for `None`."""
    return _LARGEST if limit is None else max(0, min(limit, _LARGEST))
