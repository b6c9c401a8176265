"""The effect ledger as an attempt uses it: look before running a tool, write down how it ended.

Invariants 1 and 2: `started` is durable before the tool's body begins, and a tool that is not declared retryable runs
at most once per call, whatever dies and whenever.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness_temporal.errors import ToolEffectConflictError
from harness_temporal.observability.observer import observer
from harness_temporal.records import Record, StepEvent, ToolEffectRecord, utc_now
from harness_temporal.step_persistence.facts import RunFacts, ToolCallFacts
from harness_temporal.step_persistence.operations import OUTCOME_METADATA_KEY, tool_event
from harness_temporal.step_persistence.outcomes import Ended
from harness_temporal.stores.protocol import StepStore

ToolRecovery = Literal['never', 'declared', 'always']
"""Whether a tool call whose outcome is unknown may run again: never, if the tool is declared retryable, or always."""
OnUnknown = Literal['report', 'suspend', 'fail']
"""What an unknown outcome does: tell the model, end the run with a request for a decision, or fail the run."""

_logger = logging.getLogger(__name__)

_UNKNOWN_OUTCOME = 'unknown'
_ADVICE = 'Look at the current state before you decide whether to call it again.'
UNKNOWN_OUTCOME_METADATA_KEY = 'harness_temporal.unknown_outcome'
"""Key in a deferred call's metadata that says that the call waits for a person to say what happened."""


@dataclass(frozen=True)
class Run:
    """The attempt holds the call: run the tool."""

    record: ToolEffectRecord


@dataclass(frozen=True)
class Reuse:
    """The call has a recorded outcome: give it, do not run the tool."""

    record: ToolEffectRecord
    value: bytes


@dataclass(frozen=True)
class Unknown:
    """An earlier attempt started the tool and its end is not known: do not run it."""

    record: ToolEffectRecord


async def claim(
    store: StepStore, run: RunFacts, call: ToolCallFacts, *, recovery: ToolRecovery, holder: str
) -> Run | Reuse | Unknown:
    """Write `started` for this attempt, unless the ledger says that the tool must not run.

    `holder` names the attempt and must be unlike any other's. The common case is one commit.
    """
    current: ToolEffectRecord | None = None
    while True:
        started = ToolEffectRecord(
            run_id=run.run_id,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            call_key=call.call_key,
            step_index=call.step_index,
            status='started',
            attempts=current.attempts + 1 if current is not None else 1,
            holder=holder,
        )
        records: list[Record] = [started]
        if not (call.announced and started.attempts == 1):
            records.append(tool_event(run, call, attempt=started.attempts, outcome=None))
        try:
            await store.commit(records)
        except ToolEffectConflictError as conflict:
            current = conflict.current
        else:
            return Run(started)
        if current.holder == holder and current.status == 'started':
            return Run(current)
        decision = decide(current, retryable=call.retryable, recovery=recovery)
        if isinstance(decision, Reuse):
            observer().duplicate_suppressed(agent=run.agent_name or '', what='tool')
            _logger.info('The call of %r was not made again: its outcome is recorded.', call.tool_name)
        if not isinstance(decision, Run):
            return decision


async def announce(store: StepStore, run: RunFacts, call: ToolCallFacts) -> None:
    """Write that a call is about to be attempted. The attempt itself claims it; nothing has started yet."""
    announced = ToolEffectRecord(
        run_id=run.run_id,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        call_key=call.call_key,
        step_index=call.step_index,
        status='started',
        attempts=0,
    )
    started = tool_event(run, call, attempt=1, outcome=None)
    try:
        await store.commit([announced, started])
    except ToolEffectConflictError:
        # A reset run meets the call it already made; the attempt will see that too.
        await store.commit([started])


def dump_claim(claim: Run | Reuse | Unknown) -> dict[str, Any]:
    """Tell of a claim in JSON, for a host whose tool runs on the other side of a durable operation."""
    dumped: dict[str, Any] = {
        'decision': type(claim).__name__.lower(),
        'attempts': claim.record.attempts,
        'started_at': claim.record.started_at.isoformat(),
    }
    if isinstance(claim, Reuse):
        dumped['value'] = claim.value.decode()
    if isinstance(claim, Unknown):
        dumped['text'] = unknown_text(claim.record)
    return dumped


def decide(current: ToolEffectRecord, *, retryable: bool, recovery: ToolRecovery) -> Run | Reuse | Unknown:
    """Decide what an attempt does with a call that the ledger knows (design, idea 2)."""
    if current.value is not None:
        return Reuse(current, current.value)
    if current.attempts == 0 or (current.status == 'failed' and current.outcome == 'error'):
        return Run(current)
    may_repeat = recovery == 'always' or (recovery == 'declared' and retryable)
    return Run(current) if may_repeat and current.status != 'completed' else Unknown(current)


async def finish(store: StepStore, run: RunFacts, call: ToolCallFacts, record: ToolEffectRecord, ended: Ended) -> None:
    """Write how the attempt that holds `record` ended.

    Raises:
        ToolEffectConflictError: Another attempt has taken over; what this one did is not written over it.
    """
    end = replace(ended_record(record, ended), idempotency_key=None, effect_summary=None)
    records: list[Record] = [end]
    if not call.announced:
        records.append(tool_event(run, call, attempt=record.attempts, outcome=ended.outcome, error=ended.error))
    await store.commit(records)
    observer().tool_call_ended(agent=run.agent_name or '', tool=call.tool_name, outcome=ended.outcome)


def ended_record(started: ToolEffectRecord, ended: Ended) -> ToolEffectRecord:
    """Return the entry of an attempt that ended so."""
    return replace(
        started,
        status='completed' if ended.outcome == 'returned' else 'failed',
        ended_at=utc_now(),
        outcome=ended.outcome,
        value=ended.value,
        error=ended.error,
    )


async def report_end(store: StepStore, run: RunFacts, call: ToolCallFacts, *, outcome: str, error: str | None) -> None:
    """Write the event of an announced call's end. Its ledger entry is its attempt's."""
    await store.commit([tool_event(run, call, attempt=1, outcome=outcome, error=error)])


async def report_unknown(store: StepStore, run: RunFacts, call: ToolCallFacts, record: ToolEffectRecord) -> None:
    """Write the event of a call that ends without a known outcome. Its ledger entry stays unresolved, for a person."""
    if not call.announced:
        unknown = tool_event(run, call, attempt=record.attempts, outcome=_UNKNOWN_OUTCOME, error=unknown_text(record))
        await store.commit([unknown])
    observer().unknown_outcome(agent=run.agent_name or '', tool=call.tool_name)
    _logger.warning('The outcome of the call of %r is unknown. It was not made again.', call.tool_name)


def is_told_unknown(event: StepEvent, call: ToolCallFacts) -> bool:
    """Whether an event says that the run went on without knowing how this call ended."""
    return (event.step_index, event.tool_call_id, event.metadata.get(OUTCOME_METADATA_KEY)) == (
        call.step_index,
        call.tool_call_id,
        _UNKNOWN_OUTCOME,
    )


def unknown_text(record: ToolEffectRecord) -> str:
    """Tell the model what is known of a call whose outcome is not."""
    if record.status == 'completed':
        return f'The call of {record.tool_name!r} completed, but its result could not be kept. {_ADVICE}'
    return (
        f'No result of this call of {record.tool_name!r} was recorded: its worker stopped while it was running. '
        f'It may have taken effect fully, partly or not at all. {_ADVICE}'
    )


def tells_unknown(text: str) -> bool:
    """Whether a tool's answer is an `unknown_text`."""
    return text.endswith(_ADVICE)
