"""A store in this process's memory, for tests and for runs that need no durability."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness_temporal.errors import DuplicateRunError, HistoryMissingError
from harness_temporal.ledger import advance
from harness_temporal.records import (
    ContinuableSnapshot,
    EncodedHistory,
    EncodedSnapshot,
    HistoryLink,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow


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
        # Nothing awaits from here on, so that checking everything first makes the rest one step.
        for run in batch.runs:
            known = self._records.get(run.run_id)
            if known and (run.registration_id is None or run.registration_id != known.registration_id):
                raise DuplicateRunError(run.run_id)
        advanced = [
            (effect, advance(self._run(effect.run_id).effects.get(effect.ledger_key), effect))
            for effect in batch.effects
        ]
        for snapshot in batch.snapshots:
            base = snapshot.history.base
            if base is not None and base not in self._links:
                raise HistoryMissingError('InMemoryStepStore', f'the history {base.hex()} is not here.')

        for record in batch.runs:
            self._records.setdefault(record.run_id, record)
        for effect, result in advanced:
            if result is not None:
                run = self._run(effect.run_id)
                seq = result.seq if result.seq is not None else run.number()
                run.effects[effect.ledger_key] = replace(result, seq=seq)
        for event in batch.events:
            self._append(event)
        for snapshot in batch.snapshots:
            self._save(snapshot)
        for response in batch.responses:
            self._run(response.run_id).response = response

    def _run(self, run_id: str) -> _Run:
        return self._runs.setdefault(run_id, _Run())

    def _append(self, event: StepEvent) -> None:
        run = self._run(event.run_id)
        if event.idempotency_key is not None:
            if event.idempotency_key in run.event_keys:
                return
            run.event_keys.add(event.idempotency_key)
        run.events.append(replace(event, seq=run.number()))

    def _save(self, encoded: EncodedSnapshot) -> None:
        snapshot, history = encoded.snapshot, encoded.history
        run = self._run(snapshot.run_id)
        if snapshot.idempotency_key is not None:
            if snapshot.idempotency_key in run.snapshot_keys:
                return
            run.snapshot_keys.add(snapshot.idempotency_key)
        self._keep(history)
        run.snapshots.append((replace(snapshot, seq=run.number()), history.head))
        if self.max_snapshots_per_run is not None:
            complete = [item for item in run.snapshots if item[0].state == 'complete']
            kept = {id(item) for item in (*run.snapshots[-self.max_snapshots_per_run :], *complete[-1:])}
            run.snapshots = [item for item in run.snapshots if id(item) in kept]

    def _keep(self, history: EncodedHistory) -> None:
        for item in history.links:
            self._links.setdefault(item.digest, item)

    def _bodies(self, head: bytes | None) -> list[bytes]:
        bodies: list[bytes] = []
        while head is not None:
            item = self._links[head]
            bodies.append(item.message.body)
            head = item.parent
        return bodies[::-1]

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

    async def list_events(self, *, run_id: str, after: int = 0, limit: int | None = None) -> list[StepEvent]:
        """Return the run's events in order."""
        events = [replace(event) for event in self._events(run_id) if (event.seq or 0) > after]
        return events if limit is None else events[:limit]

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
        return [SnapshotRow(snapshot, self._bodies(head)) for snapshot, head in found]

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest ledger entry with this tool call id."""
        found = [effect for effect in await self.list_tool_effects(run_id=run_id) if effect.tool_call_id == tool_call_id]
        return found[-1] if found else None

    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return all ledger entries of the run."""
        run = self._runs.get(run_id)
        return sorted(run.effects.values(), key=lambda effect: effect.seq or 0) if run else []

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the entries whose effect may or may not have happened."""
        return [effect for effect in await self.list_tool_effects(run_id=run_id) if effect.status == 'started']

    async def get_model_response(self, *, run_id: str, key: str) -> ModelResponseRecord | None:
        """Return the run's latest recorded model response if it is the one under `key`."""
        run = self._runs.get(run_id)
        return run.response if run and run.response and run.response.key == key else None
