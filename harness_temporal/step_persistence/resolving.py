"""A person's decision about a tool call whose outcome nobody recorded.

The ledger needs no rule of its own for it: a decision is an attempt that runs nothing. It takes the call over under a
holder of its own and ends it, in one batch. So it loses against an attempt that was faster, no second decision can
replace it, and an attempt that wakes up later cannot write over it (`ledger.advance`).
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.exceptions import ToolFailed

from harness_temporal.errors import EffectNotUnresolvedError, NotStorableError
from harness_temporal.records import StepEvent, ToolEffectRecord
from harness_temporal.step_persistence.effects import ended_record
from harness_temporal.step_persistence.facts import RunFacts, ToolCallFacts
from harness_temporal.step_persistence.operations import tool_event
from harness_temporal.step_persistence.outcomes import Ended, ended_with_error, ended_with_value
from harness_temporal.stores.protocol import StepStore

PERSON_HOLDER_PREFIX: Final = 'person:'
"""How the holder of a decision begins in the ledger."""
RESOLVED_BY_METADATA_KEY: Final = 'harness.resolved_by'
"""In the metadata of the event of a decision: who made it."""


async def resolve_as_completed(
    store: StepStore, *, run_id: str, tool_call_id: str, value: Any, by: str
) -> ToolEffectRecord:
    """Record that the call had its effect and gave `value`. Whoever goes on from the run gets it as the tool's result.

    Args:
        store: The run's store.
        run_id: The run's id.
        tool_call_id: The call's id or, where several calls of the run share one, its ledger key.
        value: What the tool gave, with a JSON form.
        by: Who says so.

    Raises:
        EffectNotUnresolvedError: No such call of the run is unresolved, or several are.
        NotStorableError: The value has no JSON form.
        ToolEffectConflictError: An attempt or another person was faster.
    """
    ended = ended_with_value(value)
    if ended.value is None:
        raise NotStorableError('The value', f'a {type(value).__name__} has no JSON form.')
    return await _resolve(store, run_id, tool_call_id, ended, by)


async def resolve_as_failed(
    store: StepStore, *, run_id: str, tool_call_id: str, reason: str, by: str
) -> ToolEffectRecord:
    """Record that the call did not have its effect. Whoever goes on from the run gets `reason` as the tool's failure.

    The model decides whether it calls the tool again.

    Raises:
        EffectNotUnresolvedError: No such call of the run is unresolved, or several are.
        ToolEffectConflictError: An attempt or another person was faster.
    """
    return await _resolve(store, run_id, tool_call_id, ended_with_error(ToolFailed(reason)), by)


async def _resolve(store: StepStore, run_id: str, tool_call_id: str, ended: Ended, by: str) -> ToolEffectRecord:
    current = await _unresolved(store, run_id, tool_call_id)
    taken = replace(
        current, attempts=current.attempts + 1, holder=f'{PERSON_HOLDER_PREFIX}{by}:{uuid.uuid4().hex}', seq=None
    )
    decided = ended_record(taken, ended)
    await store.commit([taken, decided, await _event(store, decided, by)])
    return decided


async def _unresolved(store: StepStore, run_id: str, tool_call_id: str) -> ToolEffectRecord:
    unresolved = await store.list_unresolved_tool_effects(run_id=run_id)
    found = [effect for effect in unresolved if tool_call_id in (effect.tool_call_id, effect.ledger_key)]
    if len(found) != 1:
        raise EffectNotUnresolvedError(run_id, tool_call_id, tuple(effect.ledger_key for effect in found or unresolved))
    return found[0]


async def _event(store: StepStore, decided: ToolEffectRecord, by: str) -> StepEvent:
    record = await store.get_run(run_id=decided.run_id)
    run = RunFacts(
        run_id=decided.run_id,
        registration_id=decided.holder,
        conversation_id=record.conversation_id if record is not None else None,
        parent_run_id=record.parent_run_id if record is not None else None,
        agent_name=record.agent_name if record is not None else None,
        metadata={RESOLVED_BY_METADATA_KEY: by},
    )
    call = ToolCallFacts(
        tool_call_id=decided.tool_call_id,
        tool_name=decided.tool_name,
        step_index=decided.step_index,
        call_key=decided.ledger_key,
    )
    return tool_event(run, call, attempt=decided.attempts, outcome=decided.outcome, error=decided.error)
