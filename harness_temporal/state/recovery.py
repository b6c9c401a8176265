"""What becomes of calls that a restored history leaves unanswered. Pure.

State-and-resume seed, "Resume Unanswered Tool Calls": what is recorded or accepted stands; a call whose outcome is not
known runs again only if the policy and the tool's own declaration, read from its present definition, allow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolResults, ToolDefinition

from harness_temporal.errors import ConfigurationError
from harness_temporal.state.capability_state import StateWrite
from harness_temporal.step_persistence.effects import ToolRecovery
from harness_temporal.step_persistence.outcomes import replay, state_writes
from harness_temporal.tools import is_recovery_retryable

Decision = Literal['answer', 'unknown', 'dispatch']
"""`answer`: a result is known. `unknown`: tell the model that none is. `dispatch`: let Pydantic AI handle the call as a
new one, which validates its arguments, and runs it or asks for what the tool needs at present."""


@dataclass(frozen=True)
class Recorded:
    """What the effect ledger holds of pending calls."""

    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Results, in the form in which Pydantic AI takes the result of a deferred call."""
    requests: Mapping[str, ApprovalRequired | CallDeferred] = field(
        default_factory=dict[str, ApprovalRequired | CallDeferred]
    )
    """Calls that asked for approval or an external result, and did nothing else."""
    writes: Mapping[str, tuple[StateWrite, ...]] = field(default_factory=dict[str, tuple[StateWrite, ...]])
    """What calls wrote to capability state before they ended."""


@dataclass(frozen=True)
class RecoveryPlan:
    """The decision for each pending call. Every list is in the order of the calls."""

    answered: tuple[ToolCallPart, ...]
    unknown: tuple[ToolCallPart, ...]
    dispatched: tuple[ToolCallPart, ...]


def check_policy(tool_recovery: str) -> None:
    """Refuse what is no policy.

    Raises:
        ConfigurationError: It is none of the three.
    """
    if tool_recovery not in get_args(ToolRecovery):
        raise ConfigurationError(f"`tool_recovery` is 'never', 'declared' or 'always', not {tool_recovery!r}.")


def read_recorded(outcomes: Mapping[str, bytes]) -> Recorded:
    """Read outcomes as the effect ledger stores them (`ToolEffectRecord.value`), by `tool_call_id`."""
    answers: dict[str, Any] = {}
    requests: dict[str, ApprovalRequired | CallDeferred] = {}
    writes: dict[str, tuple[StateWrite, ...]] = {}
    for call_id, outcome in outcomes.items():
        if written := state_writes(outcome):
            writes[call_id] = tuple(map(StateWrite.load, written))
        try:
            answers[call_id] = replay(outcome)
        except (ModelRetry, ToolFailed) as told:
            answers[call_id] = told
        except (ApprovalRequired, CallDeferred) as asked:
            requests[call_id] = asked
    return Recorded(DeferredToolResults(calls=answers).to_tool_call_results(), requests, writes)


def decide(
    tool: ToolDefinition | None, *, policy: ToolRecovery, has_answer: bool = False, asked: bool = False
) -> Decision:
    """Decide about one pending call.

    Args:
        tool: The tool's definition as it was just prepared; `None` if the run does not have the tool.
        policy: The run's `tool_recovery`.
        has_answer: The host accepted a result or denial of the call, or the ledger holds its outcome.
        asked: The ledger says that the call asked for approval or an external result, so that it did nothing yet.
    """
    if has_answer:
        return 'answer'
    if tool is None:
        return 'unknown'
    if asked:
        return 'dispatch'
    if policy == 'never':
        return 'unknown'
    if policy == 'always' or tool.kind == 'output' or is_recovery_retryable(tool):
        return 'dispatch'
    return 'unknown'


def plan_recovery(
    pending: Sequence[ToolCallPart],
    *,
    policy: ToolRecovery,
    tools: Mapping[str, ToolDefinition],
    answers: Mapping[str, Any],
    requests: Mapping[str, ApprovalRequired | CallDeferred],
) -> RecoveryPlan:
    """Decide about every pending call, each by itself."""
    decisions = [
        (
            call,
            decide(
                tools.get(call.tool_name),
                policy=policy,
                has_answer=call.tool_call_id in answers,
                asked=call.tool_call_id in requests,
            ),
        )
        for call in pending
    ]
    return RecoveryPlan(
        answered=tuple(call for call, decision in decisions if decision == 'answer'),
        unknown=tuple(call for call, decision in decisions if decision == 'unknown'),
        dispatched=tuple(call for call, decision in decisions if decision == 'dispatch'),
    )
