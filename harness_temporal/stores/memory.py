"""A store in this process's memory, for tests and for runs that need no durability."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from harness_temporal.errors import DuplicateRunError, HarnessError, HistoryMissingError
from harness_temporal.ledger import advance
from harness_temporal.records import (
    ContinuableSnapshot,
    EncodedSnapshot,
    HistoryLink,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    StoredMessage,
    ToolEffectRecord,
)
from harness_temporal.stores.external import digests_in
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow

_Undo: TypeAlias = list[Callable[[], object]]


@dataclass
class _Run:
    """All that belongs to one run id, registered or not."""

    next_seq: int = 1
    events: list[StepEvent] = field(default_factory=list[StepEvent])
    event_keys: set[str] = field(default_factory=set[str])
    snapshots: list[tuple[ContinuableSnapshot, bytes | None]] = field(
        default_factory=list[tuple[ContinuableSnapshot, bytes | None]]
    )
    snapshot_keys: set[str] = field(default_factory=set[str])
    effects: dict[str, ToolEffectRecord] = field(default_factory=dict[str, ToolEffectRecord])
    response: ModelResponseRecord | None = None

    def number(self) -> int:
        seq = self.next_seq
        self.next_seq += 1
        return seq


class InMemoryStepStore(BaseStepStore):
    """Keeps everything in memory. What it returns is never shared with what was saved.

    Args:
        max_snapshots_per_run: How many snapshots to keep per run; `None` keeps all.
    """

    def __init__(self, *, max_snapshots_per_run: int | None = None) -> None:
        super().__init__(max_snapshots_per_run=max_snapshots_per_run)
        self._records: dict[str, RunRecord] = {}
        self._runs: dict[str, _Run] = {}
        self._links: dict[bytes, HistoryLink] = {}

    async def _write(self, batch: PreparedBatch) -> None:
        # Nothing awaits in here, so no reader sees half a batch; what a refused record leaves behind is undone.
        undo: _Undo = []
        try:
            for run in batch.runs:
                self._register(run, undo)
            for effect in batch.effects:
                self._record(effect, undo)
            for event in batch.events:
                self._append(event, undo)
            for snapshot in batch.snapshots:
                self._save(snapshot, undo)
        except HarnessError:
            for step in reversed(undo):
                step()
            raise
        for response in batch.responses:
            self._run(response.run_id).response = response

    def _register(self, record: RunRecord, undo: _Undo) -> None:
        known = self._records.get(record.run_id)
        if known is None:
            self._records[record.run_id] = replace(record)
            undo.append(partial(self._records.pop, record.run_id))
        elif record.registration_id is None or record.registration_id != known.registration_id:
            raise DuplicateRunError(record.run_id)

    def _record(self, effect: ToolEffectRecord, undo: _Undo) -> None:
        run = self._run(effect.run_id)
        key = effect.ledger_key
        current = run.effects.get(key)
        result = advance(current, effect)
        if result is None:
            return
        if current is None:
            undo.append(partial(setattr, run, 'next_seq', run.next_seq))
            undo.append(partial(run.effects.pop, key))
            run.effects[key] = replace(result, seq=run.number())
        else:
            undo.append(partial(run.effects.__setitem__, key, current))
            run.effects[key] = result

    def _run(self, run_id: str) -> _Run:
        return self._runs.setdefault(run_id, _Run())

    def _append(self, event: StepEvent, undo: _Undo) -> None:
        run = self._run(event.run_id)
        if event.idempotency_key is not None:
            if event.idempotency_key in run.event_keys:
                return
            run.event_keys.add(event.idempotency_key)
            undo.append(partial(run.event_keys.discard, event.idempotency_key))
        undo.append(partial(setattr, run, 'next_seq', run.next_seq))
        undo.append(run.events.pop)
        run.events.append(replace(event, seq=run.number()))

    def _save(self, encoded: EncodedSnapshot, undo: _Undo) -> None:
        snapshot, history = encoded.snapshot, encoded.history
        run = self._run(snapshot.run_id)
        if snapshot.idempotency_key is not None and snapshot.idempotency_key in run.snapshot_keys:
            return
        if history.base is not None and history.base not in self._links:
            raise HistoryMissingError('InMemoryStepStore', f'the history {history.base.hex()} is not here.')
        if snapshot.idempotency_key is not None:
            run.snapshot_keys.add(snapshot.idempotency_key)
            undo.append(partial(run.snapshot_keys.discard, snapshot.idempotency_key))
        for item in reversed(history.links):
            # A link that is here has all those before it here.
            if item.digest in self._links:
                break
            self._links[item.digest] = item
            undo.append(partial(self._links.pop, item.digest))
        undo.append(partial(setattr, run, 'next_seq', run.next_seq))
        saved = replace(snapshot, seq=run.number()), history.head
        if self.max_snapshots_per_run is None:
            run.snapshots.append(saved)
            undo.append(run.snapshots.pop)
            return
        undo.append(partial(setattr, run, 'snapshots', run.snapshots))
        snapshots = [*run.snapshots, saved]
        complete = [item for item in snapshots if item[0].state == 'complete']
        kept = {id(item) for item in (*snapshots[-self.max_snapshots_per_run :], *complete[-1:])}
        run.snapshots = [item for item in snapshots if id(item) in kept]

    def _messages(self, head: bytes | None) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while head is not None:
            item = self._links[head]
            messages.append(item.message)
            head = item.parent
        return messages[::-1]

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the run's record."""
        record = self._records.get(run_id)
        return replace(record) if record else None

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        """Return the matching runs by start; with `limit`, the newest of them."""
        found = [
            replace(record)
            for record in self._records.values()
            if parent_run_id in (None, record.parent_run_id) and conversation_id in (None, record.conversation_id)
        ]
        found.sort(key=lambda record: record.started_at)
        return found if limit is None else found[max(0, len(found) - limit) :]

    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        events = [replace(event) for event in self._events(run_id) if (event.seq or 0) > after]
        return events if limit is None else events[: max(0, limit)]

    def _events(self, run_id: str) -> list[StepEvent]:
        run = self._runs.get(run_id)
        return run.events if run else []

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        run = self._runs.get(run_id)
        found = [
            (snapshot, head)
            for snapshot, head in (run.snapshots if run else [])
            if include_interrupted or snapshot.state == 'complete'
        ]
        if newest is not None:
            found = found[max(0, len(found) - newest) :]
        return [SnapshotRow(snapshot, self._messages(head)) for snapshot, head in found]

    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        effects = await self._read_tool_effects(run_id, unresolved=False)
        return next((effect for effect in reversed(effects) if effect.tool_call_id == tool_call_id), None)

    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        run = self._runs.get(run_id)
        effects = sorted(run.effects.values(), key=lambda effect: effect.seq or 0) if run else []
        return [effect for effect in effects if effect.status == 'started' or not unresolved]

    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        run = self._runs.get(run_id)
        return run.response if run and run.response and run.response.key == key else None

    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        runs = [run for run in await self.list_runs() if run.started_at < started_before]
        later = [run for run in runs if after is None or run.run_id > after]
        return sorted(later, key=lambda run: run.run_id)[:limit]

    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        if idle_since is not None and any(self._last_activity(run_id) >= idle_since for run_id in run_ids):
            return False
        for run_id in run_ids:
            self._records.pop(run_id, None)
            self._runs.pop(run_id, None)
        return True

    async def collect_messages(self, *, untouched_since: datetime) -> int:
        used = set[bytes]()
        for run in self._runs.values():
            for _, head in run.snapshots:
                while head is not None and head not in used:
                    used.add(head)
                    head = self._links[head].parent
        loose = self._links.keys() - used
        for digest in loose:
            del self._links[digest]
        return len(loose)

    async def media_references(self) -> AsyncGenerator[str]:
        bodies = [link.message.body for link in self._links.values()]
        for run in self._runs.values():
            bodies += [effect.value for effect in run.effects.values() if effect.value is not None]
            bodies += [run.response.body] if run.response else []
        for body in bodies:
            for digest in digests_in(body):
                yield digest

    def _last_activity(self, run_id: str) -> datetime:
        run = self._run(run_id)
        moments = [event.timestamp for event in run.events]
        moments += [snapshot.timestamp for snapshot, _ in run.snapshots]
        moments += [effect.ended_at or effect.started_at for effect in run.effects.values()]
        moments += [self._records[run_id].started_at] if run_id in self._records else []
        return max(moments, default=datetime.min.replace(tzinfo=UTC))
