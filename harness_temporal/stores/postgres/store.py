"""The store: what is asked of the database, and what is made of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from harness_temporal.databases.postgres.sql import Row, Statements
from harness_temporal.errors import (
    ConfigurationError,
    DuplicateRunError,
    HistoryMissingError,
    StoreUnavailableError,
    ToolEffectConflictError,
)
from harness_temporal.records import EncodedHistory, ModelResponseRecord, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.postgres.batch import encode, is_repeatable, ledger_rows
from harness_temporal.stores.postgres.beliefs import Beliefs, LedgerEntry, LedgerKey, ledger_key
from harness_temporal.stores.postgres.rows import STORE, from_row, snapshots_from_rows
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow
from harness_temporal.text import escape

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

_LARGEST = 2**63 - 1
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
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: asyncpg.Pool | None = None,
        schema: str = 'harness_temporal',
        max_snapshots_per_run: int | None = None,
        max_pool_size: int = 10,
        acquire_timeout: float = 30.0,
    ) -> None:
        super().__init__(max_snapshots_per_run=max_snapshots_per_run)
        try:
            # Here, so that the module can be imported where the driver is not installed.
            from harness_temporal.databases.postgres.connections import Connections
        except ModuleNotFoundError as error:
            raise ConfigurationError(f"`{STORE}` needs asyncpg: install 'harness-temporal[postgres]'.") from error
        statements = Statements(schema, 'harness_temporal.stores.postgres')
        self._queries = statements.queries
        self._connections = Connections(
            dsn, pool, statements, max_pool_size=max_pool_size, acquire_timeout=acquire_timeout
        )
        self._beliefs = Beliefs()

    async def aclose(self) -> None:
        """Close the store, and its pool unless it was given. A closed store cannot be used again."""
        await self._connections.aclose()

    # --- writing ---

    async def _write(self, batch: PreparedBatch) -> None:
        entries = {key: self._beliefs.entry(key) for key in map(ledger_key, batch.effects)}
        known_length: Callable[[EncodedHistory], int] = self._beliefs.known_length
        were_read = False
        for _ in range(_ROUNDS):
            try:
                if await self._commit(batch, entries, known_length):
                    return
            except ToolEffectConflictError:
                if were_read:
                    raise
            except HistoryMissingError:
                if known_length is _nothing:
                    raise
                self._beliefs.forget_links()
                known_length = _nothing
                continue
            entries = await self._read_entries(entries)
            were_read = True
        raise StoreUnavailableError(STORE, f'other writers changed the same tool effects {_ROUNDS} times in a row.')

    async def _commit(
        self,
        batch: PreparedBatch,
        entries: Mapping[LedgerKey, LedgerEntry | None],
        known_length: Callable[[EncodedHistory], int],
    ) -> bool:
        """Write the batch and return true, or false if the ledger holds other entries than the given ones."""
        commit = encode(batch, entries, known_length)
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
        if conversation is not None:
            rows = await self._fetch('list_runs_of_conversation', _bounded(limit), conversation, parent)
        elif parent is not None:
            rows = await self._fetch('list_runs_of_parent', _bounded(limit), parent)
        else:
            rows = await self._fetch('list_runs', _bounded(limit))
        return [from_row(RunRecord, row) for row in reversed(rows)]

    async def list_events(self, *, run_id: str, after: int = 0, limit: int | None = None) -> list[StepEvent]:
        """Return the run's events in order."""
        rows = await self._fetch('list_events', escape(run_id), _bounded(after), _bounded(limit))
        return [from_row(StepEvent, row) for row in rows]

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        rows = await self._fetch('read_snapshots', escape(run_id), include_interrupted, _bounded(newest))
        return snapshots_from_rows(rows)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest ledger entry with this tool call id."""
        found = await self._effects('get_tool_effect', escape(run_id), escape(tool_call_id))
        return found[0] if found else None

    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return all ledger entries of the run."""
        return await self._effects('list_tool_effects', escape(run_id))

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the entries whose effect may or may not have happened."""
        return await self._effects('list_unresolved_tool_effects', escape(run_id))

    async def get_model_response(self, *, run_id: str, key: str) -> ModelResponseRecord | None:
        """Return the run's latest recorded model response if it is the one under `key`."""
        rows = await self._fetch('get_model_response', escape(run_id), escape(key))
        return from_row(ModelResponseRecord, rows[0]) if rows else None

    async def _effects(self, query: str, *arguments: object) -> list[ToolEffectRecord]:
        entries = [_entry(row) for row in await self._fetch(query, *arguments)]
        for entry in entries:
            # Whoever reads the ledger is likely to write to it next.
            self._beliefs.saw_entry(entry)
        return [entry.record for entry in entries]

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        return await self._connections.fetch(self._queries[query], *arguments)


def _nothing(history: EncodedHistory) -> int:
    """Believe that none of a history is stored."""
    return 0


def _entry(row: Row) -> LedgerEntry:
    return LedgerEntry(from_row(ToolEffectRecord, row), row['revision'])


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _bounded(limit: int | None) -> int:
    """Return a number that PostgreSQL can count to, and that means 'all' for `None`."""
    return _LARGEST if limit is None else max(0, min(limit, _LARGEST))
