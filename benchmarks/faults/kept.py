"""What a store has of a run, and whether its parts agree with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness_temporal.records import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores import StepStore


@dataclass
class Kept:
    """What a store has of one run."""

    record: RunRecord | None
    events: list[StepEvent]
    effects: list[ToolEffectRecord]
    snapshots: list[ContinuableSnapshot]

    @classmethod
    async def of(cls, store: StepStore, run_id: str) -> Kept:
        return cls(
            await store.get_run(run_id=run_id),
            await store.list_events(run_id=run_id),
            await store.list_tool_effects(run_id=run_id),
            await store.list_snapshots(run_id=run_id, include_interrupted=True),
        )

    @property
    def ends(self) -> list[str]:
        """The ends that its log tells of."""
        return [event.kind for event in self.events if event.kind in ('run_completed', 'run_failed')]

    @property
    def answered_requests(self) -> int:
        return len({event.step_index for event in self.events if event.kind == 'model_request_completed'})

    def contradictions(self) -> Iterator[str]:
        """Compare the parts of one run's record with each other."""
        if self.record is None:
            yield 'its run is not registered'
        numbers = sorted([item.seq or 0 for item in (*self.events, *self.effects, *self.snapshots)])
        if numbers != [*range(1, len(numbers) + 1)]:
            yield f'its sequence numbers are {numbers}'
        for keys in (
            [item.idempotency_key for item in self.events],
            [item.idempotency_key for item in self.snapshots],
            [item.ledger_key for item in self.effects],
        ):
            if twice := [key for key, count in Counter(keys).items() if count > 1 and key is not None]:
                yield f'it has twice {twice}'
        kinds = Counter(event.kind for event in self.events)
        if kinds['run_started'] < 1:
            yield 'it has no start'
        started = {event.tool_call_id for event in self.events if event.kind == 'tool_call_started'}
        completed = {event.tool_call_id for event in self.events if event.kind == 'tool_call_completed'}
        if started != {entry.tool_call_id for entry in self.effects}:
            yield f'its log tells of the calls {sorted(map(str, started))}, its ledger of {self.effects}'
        if completed != {entry.tool_call_id for entry in self.effects if entry.status == 'completed'}:
            yield f'its log has the ends of {sorted(map(str, completed))}, its ledger {self.effects}'
