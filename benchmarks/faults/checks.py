"""What must hold of a run whatever was killed: the oracle, the ledger, the log, the snapshots and Temporal agree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from temporalio.client import WorkflowHistory

from benchmarks.faults.agents import UNDECLARED
from benchmarks.faults.histories import scheduled
from benchmarks.faults.oracle import Oracle
from benchmarks.faults.runs import DECIDED, Driven, Leg
from benchmarks.faults.script import calls, given, is_delegated
from harness_temporal.errors import HarnessError
from harness_temporal.records import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores import StepStore

_UNKNOWN = ('May have taken effect', 'may have taken effect', 'interrupted before a result')


@dataclass
class Findings:
    """What does not hold, by kind."""

    lost_runs: list[str] = field(default_factory=list[str])
    double_effects: list[str] = field(default_factory=list[str])
    unreported_effects: list[str] = field(default_factory=list[str])
    inconsistencies: list[str] = field(default_factory=list[str])
    replay_failures: list[str] = field(default_factory=list[str])


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


async def check_run(
    store: StepStore, oracle: Oracle, driven: Driven, histories: Sequence[Sequence[WorkflowHistory]], found: Findings
) -> None:
    """Look at one run, its resumptions and its delegates; `histories` are those of each leg."""
    name = driven.planned.workflow_id
    if (status := driven.legs[-1].status) != 'completed':
        found.lost_runs.append(f'{name} is {status}: {driven.legs[-1].failure}')
    ledger: list[ToolEffectRecord] = []
    for leg, of_leg in zip(driven.legs, histories, strict=True):
        if leg.status == 'lost':
            continue
        try:
            kept = await Kept.of(store, leg.run_id)
            delegates = [await Kept.of(store, run.run_id) for run in await store.list_runs(parent_run_id=leg.run_id)]
            stated = await _stated(store, leg)
        except HarnessError as error:
            found.inconsistencies.append(f'{leg.workflow_id} cannot be read: {error!r}')
            continue
        for item in (kept, *delegates):
            ledger += item.effects
            found.inconsistencies += [f'{leg.workflow_id}: {text}' for text in _contradictions(item)]
        found.inconsistencies += [
            f'{leg.workflow_id}: {text}' for text in _contradicts_temporal(leg, kept, of_leg, stated)
        ]
    _check_effects(driven, oracle, ledger, found)


def _check_effects(driven: Driven, oracle: Oracle, ledger: Sequence[ToolEffectRecord], found: Findings) -> None:
    """Compare what happened outside with what is recorded, and with what the model was told."""
    name = driven.planned.workflow_id
    told = _told(driven)
    for call_id, tool in calls(driven.planned.steps).items():
        happened = oracle.effects[name, call_id]
        entries = [entry for entry in ledger if entry.tool_call_id == call_id and entry.outcome != 'approval_required']
        # A resumption that runs a declared tool again begins the delegates of that tool anew.
        times = oracle.in_one_workflow[name, call_id] if is_delegated(call_id) else happened
        if tool in UNDECLARED and times > 1:
            found.double_effects.append(f'{name} {call_id} ({tool}) happened {times} times')
        known = any(entry.status == 'completed' for entry in entries)
        open_ends = [entry for entry in entries if entry.status == 'started' or entry.outcome in ('cancelled', 'error')]
        if happened and not known and not open_ends:
            found.unreported_effects.append(f'{name} {call_id} ({tool}) happened, and the ledger has {entries}')
        if known and not happened:
            found.inconsistencies.append(f'{name} {call_id} ({tool}) is completed and never happened')
        if told is None or is_delegated(call_id):
            continue
        text = told.get(call_id)
        if text is None:
            found.inconsistencies.append(f'{name} {call_id} ({tool}) has no result')
        elif text.startswith(given(call_id)):
            if not known:
                found.inconsistencies.append(f'{name} {call_id} ({tool}) gave a result that the ledger has not')
        elif not (text.startswith(DECIDED) or any(part in text for part in _UNKNOWN)):
            found.inconsistencies.append(f'{name} {call_id} ({tool}) gave {text!r}')


def _told(driven: Driven) -> dict[str, str] | None:
    """Return what the model was told of each call, as it said at the end."""
    last = driven.legs[-1].ended
    return json.loads(last.output) if last is not None and last.status == 'completed' else None


async def _stated(store: StepStore, leg: Leg) -> int | None:
    """Return how many messages the state has with which a run ended."""
    if leg.ended is None or leg.ended.state is None:
        return None
    return len((await leg.ended.state.load(store)).message_history)


def _contradictions(kept: Kept) -> Iterator[str]:
    """Compare the parts of one run's record with each other."""
    if kept.record is None:
        yield 'its run is not registered'
    numbers = sorted([item.seq or 0 for item in (*kept.events, *kept.effects, *kept.snapshots)])
    if numbers != [*range(1, len(numbers) + 1)]:
        yield f'its sequence numbers are {numbers}'
    for keys in (
        [item.idempotency_key for item in kept.events],
        [item.idempotency_key for item in kept.snapshots],
        [item.ledger_key for item in kept.effects],
    ):
        if twice := [key for key, count in Counter(keys).items() if count > 1 and key is not None]:
            yield f'it has twice {twice}'
    kinds = Counter(event.kind for event in kept.events)
    if kinds['run_started'] < 1:
        yield 'it has no start'
    started = {event.tool_call_id for event in kept.events if event.kind == 'tool_call_started'}
    completed = {event.tool_call_id for event in kept.events if event.kind == 'tool_call_completed'}
    if started != {entry.tool_call_id for entry in kept.effects}:
        yield f'its log tells of the calls {sorted(map(str, started))}, its ledger of {kept.effects}'
    if completed != {entry.tool_call_id for entry in kept.effects if entry.status == 'completed'}:
        yield f'its log has the ends of {sorted(map(str, completed))}, its ledger {kept.effects}'


def _contradicts_temporal(
    leg: Leg, kept: Kept, histories: Sequence[WorkflowHistory], stated: int | None
) -> Iterator[str]:
    """Compare a run's record with how Temporal says that it went."""
    counts = scheduled(histories)
    ended = [event.kind for event in kept.events if event.kind in ('run_completed', 'run_failed')]
    if leg.status in ('completed', 'suspended') and ended != ['run_completed']:
        yield f'it is {leg.status}, and its log has the ends {ended}'
    if leg.status == 'failed':
        return
    if counts['call_tool'] != len(kept.effects):
        yield f'Temporal has {counts["call_tool"]} tool calls, the ledger {len(kept.effects)}'
    answered = {event.step_index for event in kept.events if event.kind == 'model_request_completed'}
    requests = counts['model_request'] + counts['model_request_stream']
    if requests != len(answered):
        yield f'Temporal has {requests} model requests, the log {len(answered)}'
    if not kept.snapshots:
        yield 'it has no snapshot'
    elif stated is not None and len(kept.snapshots[-1].messages) != stated:
        yield f'its state has {stated} messages, its newest snapshot {len(kept.snapshots[-1].messages)}'
