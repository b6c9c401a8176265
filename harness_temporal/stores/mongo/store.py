"""The store: what is asked of the database, and what is made of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import StoreUnavailableError
from harness_temporal.lazy import needed_by
from harness_temporal.media.mongo import MongoMediaStore
from harness_temporal.records import (
    ContinuableSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
    to_microseconds,
)
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.mongo.documents import STORE, Document, from_document, name_within
from harness_temporal.stores.mongo.messages import Messages, read_whole
from harness_temporal.stores.mongo.patience import PATIENCE, until_done
from harness_temporal.stores.mongo.plan import Counter, Held, plan
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow
from harness_temporal.text import escape

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

_LARGEST = 2**63 - 1


class MongoStepStore(BaseStepStore):
    """Keeps everything in one database of MongoDB (5.0 or newer, a replica set or behind `mongos`).

    Many processes may share the database. Nothing happens before the first use; the first write makes the indexes,
    which takes the right to, and time where the collections are full already. A standalone server has no transactions
    and is refused.

    A commit is one transaction, written to a majority before it returns. A commit that is cancelled, or that raises
    `StoreUnavailableError`, may have been written, but never in part. A writer that dies in the middle of one holds up
    the next write to the same runs until the server drops its transaction, which takes a minute unless it is set
    otherwise.

    The store belongs to the event loop of its first use.

    Args:
        client: A client, which stays open and whose own settings for reading and writing do not matter.
        db_url: Where the database is instead; the store makes a client of its own.
        database: The name of the database.
        max_snapshots_per_run: How many snapshots to keep per run; `None` keeps all.
        timeout: How many seconds one request may take, with all that the driver repeats while no server answers, before
            the call raises `StoreUnavailableError`. It takes the place of what the client has for that.
        media_store: Where large parts are kept; by default in the same database, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt content with the newest of these; needs the extra `crypto`. See `BaseStepStore` for what that is.
    """

    def __init__(
        self,
        client: AsyncMongoClient[Any] | None = None,
        *,
        db_url: str | None = None,
        database: str = 'harness_temporal',
        max_snapshots_per_run: int | None = None,
        timeout: float = 30.0,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        with needed_by(f'`{STORE}`', 'pymongo', 'mongo'):
            from harness_temporal.databases.mongo import Database
            from harness_temporal.stores.mongo.content import Content
            from harness_temporal.stores.mongo.retention import Collector
            from harness_temporal.stores.mongo.writer import Writer
        self._database = Database(client, db_url, database, timeout=timeout)
        super().__init__(
            max_snapshots_per_run=max_snapshots_per_run,
            media_store=MongoMediaStore(database=self._database) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
        )
        self._messages = Messages(self._database)
        self._content = Content(self._database, self._messages)
        self._collector = Collector(self._database, self._messages, self._content)
        self._writer = Writer(self._database)
        self._writers = WeakValueDictionary[str, asyncio.Lock]()

    async def aclose(self) -> None:
        """Close the store, and its client unless it was given. A closed store cannot be used again."""
        await self._database.aclose()

    # --- writing ---

    async def _write(self, batch: PreparedBatch) -> None:
        await self._writer.make_collections()
        run_ids = {record.run_id for record in (*batch.runs, *batch.effects, *batch.events, *batch.responses)}
        run_ids |= {encoded.snapshot.run_id for encoded in batch.snapshots}
        may_repeat = False

        async def attempt() -> bool:
            nonlocal may_repeat
            is_written = await self._try_to_write(batch, run_ids, may_repeat=may_repeat)
            may_repeat = True
            return is_written

        await self._in_turn(run_ids, attempt)

    async def _in_turn(self, run_ids: set[str], attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try to change runs until no other writer is faster."""
        try:
            async with asyncio.timeout(PATIENCE) as patience, self._turn(run_ids):
                # What follows ends by itself, and not in the middle of a commit.
                patience.reschedule(None)
                await until_done(attempt, seconds=PATIENCE, store=STORE)
        except TimeoutError as error:
            raise StoreUnavailableError(STORE, f'other writes to these runs took {PATIENCE:g} seconds.') from error

    @asynccontextmanager
    async def _turn(self, run_ids: Iterable[str]) -> AsyncGenerator[None]:
        """Keep the other writers of this process out: of two at once the server would send one away."""
        async with AsyncExitStack() as stack:
            for run_id in sorted(run_ids):
                await stack.enter_async_context(self._writers.setdefault(run_id, asyncio.Lock()))
            yield

    async def _try_to_write(self, batch: PreparedBatch, run_ids: set[str], *, may_repeat: bool) -> bool:
        """Write the batch, or return false if that has to be tried anew.

        Events are hardly ever written twice. So their keys are only looked for where `may_repeat` says so; elsewhere
        the index of the keys refuses the batch.
        """
        held = await self._held(batch, run_ids, may_repeat=may_repeat)
        unknown = sum(run.run_id not in held.runs for run in batch.runs)
        registration = await self._writer.draw_registrations(len(batch.runs)) if unknown else 0
        changes = plan(batch, held, registration=registration, max_snapshots=self.max_snapshots_per_run)
        await self._content.save(changes.content, changes.histories)
        return not changes.counters or await self._writer.commit(changes)

    async def _held(self, batch: PreparedBatch, run_ids: set[str], *, may_repeat: bool) -> Held:
        """Read what a batch touches. The counters first: what is newer than they are is found out at the commit.

        A run without a counter has nothing. What could be found is of one that began meanwhile, and that may be deleted
        before the commit, which would not find out.
        """
        counters = await self._database.named('counters', run_ids)
        known = {name: Counter(item['version'], item['next_seq']) for name, item in counters.items()}
        held = Held({run_id: known.get(run_id, Counter()) for run_id in run_ids})
        runs = await self._database.named('runs', {run.run_id for run in batch.runs if run.run_id in known})
        held.runs = {name: from_document(RunRecord, item) for name, item in runs.items()}
        names = {name_within(item.run_id, item.ledger_key) for item in batch.effects if item.run_id in known}
        effects = await self._with_bodies(lambda: self._by_name('tool_effects', names), 'value')
        held.effects = {item['_id']: from_document(ToolEffectRecord, item) for item in effects}
        snapshots = [encoded.snapshot for encoded in batch.snapshots if encoded.snapshot.run_id in known]
        keys = {
            name_within(item.run_id, item.idempotency_key) for item in snapshots if item.idempotency_key is not None
        }
        held.snapshot_keys = {*await self._database.named('snapshot_idempotency_keys', keys)}
        for run_id in known:
            if may_repeat:
                held.event_keys |= await self._event_keys(batch, run_id)
            if self.max_snapshots_per_run is not None and any(item.run_id == run_id for item in snapshots):
                held.snapshots[run_id] = await self._database.find(
                    'snapshots', {'run_id': run_id}, fields=['seq', 'state'], sort={'seq': 1}
                )
        return held

    async def _event_keys(self, batch: PreparedBatch, run_id: str) -> set[str]:
        keys = [event.idempotency_key for event in batch.events if event.run_id == run_id]
        stored_keys = [escape(key) for key in keys if key is not None]
        # The type is what the index is limited to, so that the server sees that it can use it.
        query = {'run_id': run_id, 'idempotency_key': {'$in': stored_keys, '$type': 'string'}}
        found = await self._database.find('events', query, fields=['idempotency_key']) if stored_keys else []
        return {f'{run_id}/{item["idempotency_key"]}' for item in found}

    async def _by_name(self, collection: str, names: set[str]) -> list[Document]:
        return [*(await self._database.named(collection, names)).values()]

    # --- reading ---

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the run's record."""
        found = await self._database.find('runs', {'_id': escape(run_id)})
        return from_document(RunRecord, found[0]) if found else None

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        """Return the matching runs by start; with `limit`, the newest of them."""
        filters = {'parent_run_id': parent_run_id, 'conversation_id': conversation_id}
        query = {
            name: {'$eq': escape(value), '$type': 'string'} for name, value in filters.items() if value is not None
        }
        newest_first = {'started_at': -1, 'registration': -1}
        found = await self._database.find('runs', query, sort=newest_first, limit=limit)
        return [from_document(RunRecord, item) for item in reversed(found)]

    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        query = {'run_id': escape(run_id), 'seq': {'$gt': max(0, min(after, _LARGEST))}}
        found = await self._database.find('events', query, sort={'seq': 1}, limit=limit)
        return [from_document(StepEvent, item) for item in found]

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        query = {'run_id': escape(run_id)} | ({} if include_interrupted else {'state': 'complete'})
        return await read_whole(
            lambda: self._database.find('snapshots', query, sort={'seq': -1}, limit=newest), self._rows
        )

    async def _rows(self, newest_first: Sequence[Document]) -> list[SnapshotRow]:
        found = newest_first[::-1]
        histories = await self._content.histories(item['head'] for item in found if item['head'] is not None)
        return [
            SnapshotRow(from_document(ContinuableSnapshot, item, messages=[]), histories.get(item['head'], []))
            for item in found
        ]

    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        found = await self._effects({'tool_call_id': escape(tool_call_id)}, run_id, newest_first=True, limit=1)
        return found[0] if found else None

    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        return await self._effects({'status': 'started'} if unresolved else {}, run_id)

    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        query = {'_id': escape(run_id), 'key': escape(key)}
        found = await self._with_bodies(lambda: self._database.find('model_responses', query), 'body')
        return from_document(ModelResponseRecord, found[0]) if found else None

    async def _effects(
        self, query: dict[str, str], run_id: str, *, newest_first: bool = False, limit: int | None = None
    ) -> list[ToolEffectRecord]:
        order = {'seq': -1 if newest_first else 1}
        query = {'run_id': escape(run_id)} | query
        found = await self._with_bodies(
            lambda: self._database.find('tool_effects', query, sort=order, limit=limit), 'value'
        )
        return [from_document(ToolEffectRecord, item) for item in found]

    async def _with_bodies(self, find: Callable[[], Awaitable[list[Document]]], name: str) -> list[Document]:
        return await read_whole(find, lambda found: self._messages.filled(found, name))

    # --- retention ---

    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        query = {'started_at': {'$lt': to_microseconds(started_before)}, '_id': {'$gt': escape(after or '')}}
        found = await self._database.find('runs', query, sort={'_id': 1}, limit=limit)
        return [from_document(RunRecord, item) for item in found]

    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        names = sorted({escape(run_id) for run_id in run_ids})
        since = None if idle_since is None else to_microseconds(idle_since)
        is_deleted: bool | None = True

        async def attempt() -> bool:
            nonlocal is_deleted
            is_deleted = await self._writer.delete_runs(names, since)
            return is_deleted is not None

        if names:
            await self._in_turn({*names}, attempt)
        return bool(is_deleted)

    async def collect_messages(self, *, untouched_since: datetime) -> int:
        return await self._collector.collect(to_microseconds(untouched_since))

    def media_references(self) -> AsyncGenerator[str]:
        return self._collector.media_references()
