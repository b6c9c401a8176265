"""Look at runs from outside: how they ended, where two of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from harness_temporal.records import RunRecord, ToolEffectRecord
from harness_temporal.stores.protocol import StepStore

RunStatus: TypeAlias = Literal['running', 'completed', 'failed', 'unknown']
"""By the run's last event of its own. `running`: its end is not recorded, because it runs or because it was cut off.
`unknown`: it has no events. A run that suspended itself has `completed`."""

_STATUSES: dict[str, RunStatus] = {'run_started': 'running', 'run_completed': 'completed', 'run_failed': 'failed'}
_OF_ONE_RUN = frozenset({'timestamp', 'run_id', 'conversation_id'})
"""Fields of messages that differ between two runs that said the same."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run in a list."""

    record: RunRecord
    status: RunStatus
    steps: int
    """Number of its last step."""
    last_event_at: datetime | None
    unresolved: int
    """Tool calls whose outcome nobody recorded."""
    error: str | None = None
    """Of a run that failed."""


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Where two runs part. Times and ids of runs do not count."""

    shared: int
    """How many messages both begin with."""
    left: Sequence[ModelMessage]
    right: Sequence[ModelMessage]
    """The messages after these."""
    left_effects: Sequence[ToolEffectRecord]
    right_effects: Sequence[ToolEffectRecord]
    """Tool calls that the other run has not, or not with this outcome in this step."""


async def summarize_run(store: StepStore, record: RunRecord) -> RunSummary:
    """Return how a run is."""
    events = await store.list_events(run_id=record.run_id)
    last = next((event for event in reversed(events) if event.kind in _STATUSES), None)
    status = _STATUSES[last.kind] if last is not None else 'running' if events else 'unknown'
    return RunSummary(
        record=record,
        status=status,
        steps=max((event.step_index for event in events), default=0),
        last_event_at=events[-1].timestamp if events else None,
        unresolved=len(await store.list_unresolved_tool_effects(run_id=record.run_id)),
        error=last.error if last is not None and status == 'failed' else None,
    )


async def list_summaries(
    store: StepStore,
    *,
    parent_run_id: str | None = None,
    conversation_id: str | None = None,
    agent_name: str | None = None,
    status: RunStatus | None = None,
    since: datetime | None = None,
    limit: int,
) -> list[RunSummary]:
    """Return the newest `limit` runs that match, the newest first. Filters combine with AND."""
    narrowed = agent_name is not None or status is not None
    records = await store.list_runs(
        parent_run_id=parent_run_id, conversation_id=conversation_id, limit=None if narrowed else limit
    )
    found: list[RunSummary] = []
    for record in reversed(records):
        if (since is not None and record.started_at < since) or len(found) == limit:
            break
        if agent_name is not None and record.agent_name != agent_name:
            continue
        summary = await summarize_run(store, record)
        if status is None or summary.status == status:
            found.append(summary)
    return found


async def compare_runs(store: StepStore, left: str, right: str) -> RunComparison:
    """Compare what two runs said, up to their newest snapshots, and what their tools did."""
    histories = [await _messages(store, run_id) for run_id in (left, right)]
    effects = [await store.list_tool_effects(run_id=run_id) for run_id in (left, right)]
    bare = [_bare(messages) for messages in histories]
    pairs = zip(*bare, strict=False)
    shared = next((index for index, (one, other) in enumerate(pairs) if one != other), min(map(len, bare)))
    return RunComparison(
        shared=shared,
        left=histories[0][shared:],
        right=histories[1][shared:],
        left_effects=_without(effects[0], effects[1]),
        right_effects=_without(effects[1], effects[0]),
    )


async def _messages(store: StepStore, run_id: str) -> list[ModelMessage]:
    snapshot = await store.latest_snapshot(run_id=run_id, include_interrupted=True)
    return snapshot.messages if snapshot is not None else []


def _bare(messages: list[ModelMessage]) -> list[Any]:
    return [_without_ids(message) for message in ModelMessagesTypeAdapter.dump_python(messages, mode='json')]


def _without_ids(message: Any) -> Any:
    fields = cast(dict[str, Any], message)
    return {
        name: [{key: value for key, value in part.items() if key not in _OF_ONE_RUN} for part in value]
        if name == 'parts'
        else value
        for name, value in fields.items()
        if name not in _OF_ONE_RUN
    }


def _without(effects: Sequence[ToolEffectRecord], others: Sequence[ToolEffectRecord]) -> list[ToolEffectRecord]:
    left = Counter(_effect_key(effect) for effect in others)
    found: list[ToolEffectRecord] = []
    for effect in effects:
        key = _effect_key(effect)
        if left[key]:
            left[key] -= 1
        else:
            found.append(effect)
    return found


def _effect_key(effect: ToolEffectRecord) -> tuple[object, ...]:
    return effect.step_index, effect.tool_name, effect.tool_call_id, effect.status, effect.outcome
