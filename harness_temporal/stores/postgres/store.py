"""The store: what is asked of the database, and what is made of its answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from harness_temporal.databases.postgres.opening import DEFAULT_SCHEMA, open_connections
from harness_temporal.databases.postgres.sql import Row
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import DuplicateRunError, StoreUnavailableError, ToolEffectConflictError
from harness_temporal.media.postgres import PostgresMediaStore
from harness_temporal.records import ModelResponseRecord, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.external import digests_in
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.postgres.batch import encode, is_repeatable, ledger_rows
from harness_temporal.stores.postgres.beliefs import Beliefs, LedgerEntry, LedgerKey, ledger_key
from harness_temporal.stores.postgres.rows import STORE, from_row, snapshots_from_rows
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow
from harness_temporal.text import escape

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

_LARGEST = 2**63 - 1
_PAGE = 100
"""Rows that collection looks at in one go."""
_ROUNDS = 10
"""How often a write is worked out anew because the ledger moved. Each time, another writer got ahead."""


class PostgresStepStore(BaseStepStore):
    """Keeps everything in one schema of a PostgreSQL database (13 or newer), which many processes may share.

    Nothing happens before the first use, which also sets up the schema, in one transaction that waits for others that
    do the same. A commit is one statement, and as a rule one round trip. A commit that is cancelled may have been
    written, but never in part.

    No state of a session is used, so a transaction pooler may be in between. For one that does not know prepared
    statements, pass a pool that was made with `statement_cache_size=0`.

    The store belongs to the event loop of its first use. When a connection breaks under a write whose records all have
    keys, it is written again; any other such write raises `StoreUnavailableError` and may have been written.

    Args:
        dsn: Where the database is; the store makes a pool of its own.
        pool: A pool instead, which stays open and as it is, with whatever codecs it has.
        schema: The schema to use; it is made unless it is there.
        max_snapshots_per_run: How many snapshots to keep per run; `None` keeps all.
        max_pool_size: How many connections the store's own pool may open.
        acquire_timeout: How many seconds a call may wait for a connection before it raises `StoreUnavailableError`.
        media_store: Where large parts are kept; by default in the same schema, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt content with the newest of these; needs the extra `crypto`. See `BaseStepStore` for what that is.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: asyncpg.Pool | None = None,
        schema: str = DEFAULT_SCHEMA,
        max_snapshots_per_run: int | None = None,
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
            package='harness_temporal.stores.postgres',
        )
        self._beliefs = Beliefs()
        super().__init__(
            max_snapshots_per_run=max_snapshots_per_run,
            media_store=PostgresMediaStore(self._connections) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
        )

    async def aclose(self) -> None:
        """Close the store, and its pool unless it was given. A closed store cannot be used again."""
        await self._connections.aclose()

    # --- writing ---

    async def _write(self, batch: PreparedBatch) -> None:
        entries = {key: self._beliefs.entry(key) for key in map(ledger_key, batch.effects)}
        were_read = False
        for _ in range(_ROUNDS):
            try:
                if await self._beliefs.checked(partial(self._commit, batch, entries)):
                    return
            except ToolEffectConflictError:
                if were_read:
                    raise
            entries = await self._read_entries(entries)
            were_read = True
        raise StoreUnavailableError(STORE, f'other writers changed the same tool effects {_ROUNDS} times in a row.')

    async def _commit(self, batch: PreparedBatch, entries: Mapping[LedgerKey, LedgerEntry | None]) -> bool:
        """Write the batch and return true, or false if the ledger holds other entries than the given ones."""
        commit = encode(batch, entries, self._beliefs.known_length)
        [answer] = await self._connections.fetch(
            self._queries['commit_batch'],
            commit.document,
            commit.content,
            self.max_snapshots_per_run,
            repeatable=is_repeatable(batch),
        )
        if answer['outcome'] == 'duplicate_run':
            raise DuplicateRunError(answer['subject'])
        if answer['outcome'] == 'effects_moved':
            return False
        for entry in commit.entries:
            self._beliefs.saw_entry(entry)
        for snapshot in batch.snapshots:
            self._beliefs.saw_history(snapshot.history)
        return True

    async def _read_entries(self, keys: Iterable[LedgerKey]) -> dict[LedgerKey, LedgerEntry | None]:
        rows = await self._fetch('ledger_entries', json.dumps(ledger_rows(keys), ensure_ascii=False))
        found = {ledger_key(entry.record): entry for entry in map(_entry, rows)}
        return {key: found.get(key) for key in keys}

    # --- reading ---

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the run's record."""
        rows = await self._fetch('get_run', escape(run_id))
        return from_row(RunRecord, rows[0]) if rows else None

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        """Return the matching runs by start; with `limit`, the newest of them."""
        parent, conversation = _escaped(parent_run_id), _escaped(conversation_id)
        if parent is not None:
            rows = await self._fetch('list_runs_of_parent', _bounded(limit), parent, conversation)
        elif conversation is not None:
            rows = await self._fetch('list_runs_of_conversation', _bounded(limit), conversation)
        else:
            rows = await self._fetch('list_runs', _bounded(limit))
        return [from_row(RunRecord, row) for row in reversed(rows)]

    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        rows = await self._fetch('list_events', escape(run_id), _bounded(after), _bounded(limit))
        return [from_row(StepEvent, row) for row in rows]

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        rows = await self._fetch('read_snapshots', escape(run_id), include_interrupted, _bounded(newest))
        return snapshots_from_rows(rows)

    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        found = await self._effects('get_tool_effect', escape(run_id), escape(tool_call_id))
        return found[0] if found else None

    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        return await self._effects(
            'list_unresolved_tool_effects' if unresolved else 'list_tool_effects', escape(run_id)
        )

    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        rows = await self._fetch('get_model_response', escape(run_id), escape(key))
        return from_row(ModelResponseRecord, rows[0]) if rows else None

    # --- retention ---

    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        """Return runs that started before then, in the database's order of their ids."""
        rows = await self._fetch('runs_by_id', after or '', started_before, limit)
        return [from_row(RunRecord, row) for row in rows]

    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        """Delete all of these runs, unless one of them was active since then."""
        names = json.dumps([escape(run_id) for run_id in sorted({*run_ids})], ensure_ascii=False)
        [row] = await self._fetch('delete_runs', names, idle_since)
        return row['deleted']

    async def collect_messages(self, *, untouched_since: datetime) -> int:
        """Delete messages that no snapshot has, however young: whoever builds on one keeps it from being deleted."""
        count, last = 0, b''
        while rows := await self._fetch('loose_links', last, _PAGE):
            [collected] = await self._fetch('collect_links', json.dumps([row['digest'].hex() for row in rows]))
            count += collected['count']
            last = rows[-1]['digest']
        return count

    async def media_references(self) -> AsyncGenerator[str]:
        """Yield the digests of the blobs that bodies refer to."""
        pages: tuple[tuple[str, tuple[str, ...], tuple[object, ...], str], ...] = (
            ('external_messages', ('digest',), (b'',), 'body'),
            ('external_values', ('run_id', 'seq'), ('', 0), 'value'),
            ('external_responses', ('run_id',), ('',), 'body'),
        )
        for query, key, last, column in pages:
            while rows := await self._fetch(query, *last, _PAGE):
                for row in rows:
                    for digest in digests_in(row[column]):
                        yield digest
                last = tuple(rows[-1][name] for name in key)

    async def _effects(self, query: str, *arguments: object) -> list[ToolEffectRecord]:
        entries = [_entry(row) for row in await self._fetch(query, *arguments)]
        for entry in entries:
            # Whoever reads the ledger is likely to write to it next.
            self._beliefs.saw_entry(entry)
        return [entry.record for entry in entries]

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        return await self._connections.fetch(self._queries[query], *arguments)


def _entry(row: Row) -> LedgerEntry:
    return LedgerEntry(from_row(ToolEffectRecord, row), row['revision'])


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _bounded(limit: int | None) -> int:
    """Return a number that PostgreSQL can count to, and that means 'all' for `None`."""
    return _LARGEST if limit is None else max(0, min(limit, _LARGEST))
