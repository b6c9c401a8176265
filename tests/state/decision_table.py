"""The decision table for calls that a restored history leaves unanswered, as data.

A cell says what becomes of the call: `ran` is that its tool was run; `approval` and `external` that the run is
suspended for one; `unknown` an unknown result; anything else how its return reads. `docs` wants the same table:
`python -m tests.state.decision_table` prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from harness_temporal.state import DeferredToolResume
from harness_temporal.step_persistence.outcomes import ended_with_error, ended_with_value
from tests.state.support import NOW, returned

POLICIES = ('never', 'declared', 'always')


@dataclass(frozen=True)
class Row:
    """What history, host and ledger hold of one call to `tool`, and what the three policies make of it."""

    id: str
    holds: str
    tool: str
    never: str
    declared: str
    always: str
    after: tuple[ModelMessage, ...] = ()
    """What follows the response in the history."""
    resume: Callable[[ToolCallPart], DeferredToolResume] | None = None
    recorded: bytes | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


def accepted(**results: Any) -> Callable[[ToolCallPart], DeferredToolResume]:
    """A host's retained batch for one call, in recovery."""

    def make(call: ToolCallPart) -> DeferredToolResume:
        (category, result), *_ = results.items()
        requests = DeferredToolRequests(**{category: [call]})
        return DeferredToolResume(
            requests, DeferredToolResults(**{category: {call.tool_call_id: result}}), recovery=True
        )

    return make


def recorded(outcome: Any) -> bytes:
    """An outcome as the effect ledger keeps it."""
    ended = ended_with_error(outcome) if isinstance(outcome, Exception) else ended_with_value(outcome)
    assert ended.value is not None
    return ended.value


def same(answer: str) -> dict[str, Any]:
    return {'never': answer, 'declared': answer, 'always': answer}


def only_unknown(tool: str) -> ModelRequest:
    content = f'This call of {tool} may have taken effect.'
    return ModelRequest(
        parts=[ToolReturnPart(tool, content, tool_call_id=tool, outcome='failed', timestamp=NOW)], state='complete'
    )


ROWS = [
    Row('success', 'a recorded return', 'safe', **same('success: OLD'), after=(returned('safe'),)),
    Row('failed', 'a recorded failure', 'safe', **same('failed: OLD'), after=(returned('safe', outcome='failed'),)),
    Row('denied', 'a recorded denial', 'safe', **same('denied: OLD'), after=(returned('safe', outcome='denied'),)),
    Row(
        'interrupted',
        "Pydantic AI's own `interrupted` return",
        'safe',
        **same('interrupted: OLD'),
        after=(returned('safe', outcome='interrupted'),),
    ),
    Row('unknown', 'an unknown result of an earlier run', 'safe', **same('unknown'), after=(only_unknown('safe'),)),
    Row(
        'retried',
        'a recorded argument retry',
        'safe',
        **same('retried: OLD'),
        after=(returned('safe', outcome='retried'),),
    ),
    Row('plain', 'nothing; tool not declared', 'plain', 'unknown', 'unknown', 'ran'),
    Row('safe', 'nothing; tool declared retryable', 'safe', 'unknown', 'ran', 'ran'),
    Row(
        'case-51-empty-request',
        'an empty interrupted request; tool declared',
        'safe',
        'unknown',
        'ran',
        'ran',
        after=(ModelRequest(parts=[], state='interrupted'),),
    ),
    Row('gone', 'nothing; the run has no such tool', 'missing', **same('unknown')),
    Row('ask', 'nothing; tool needs approval, not declared', 'ask', 'unknown', 'unknown', 'approval'),
    Row('safe-approval', 'nothing; tool needs approval, declared', 'safe_approval', 'unknown', 'approval', 'approval'),
    Row('safe-ask', 'nothing; declared tool asks while it runs', 'safe_ask', 'unknown', 'approval', 'approval'),
    Row('outside', 'nothing; external tool, not declared', 'outside', 'unknown', 'unknown', 'external'),
    Row('safe-outside', 'nothing; external tool, declared', 'safe_outside', 'unknown', 'external', 'external'),
    Row('defers', 'nothing; tool defers itself, not declared', 'defers', 'unknown', 'unknown', 'external'),
    Row(
        'arguments',
        'nothing; declared tool, arguments no longer valid',
        'safe',
        'unknown',
        'retried',
        'retried',
        arguments={'x': 'no'},
    ),
    Row('accepted', 'an accepted external result', 'outside', **same('success: 42'), resume=accepted(calls=42)),
    Row(
        'accepted-false',
        'an accepted external `False`',
        'outside',
        **same('success: false'),
        resume=accepted(calls=False),
    ),
    Row(
        'accepted-failure',
        'an accepted external failure',
        'outside',
        **same('failed: no'),
        resume=accepted(calls=ToolFailed('no')),
    ),
    Row(
        'accepted-denial',
        'an accepted denial',
        'safe_approval',
        **same('denied: never'),
        resume=accepted(approvals=ToolDenied('never')),
    ),
    Row(
        'approved',
        'an accepted approval; tool not declared',
        'ask',
        'unknown',
        'unknown',
        'approval',
        resume=accepted(approvals=True),
    ),
    Row(
        'safe-approved',
        'an accepted approval with other arguments; tool declared',
        'safe_approval',
        'unknown',
        'approval',
        'approval',
        resume=accepted(approvals=ToolApproved(override_args={'x': 2})),
    ),
    Row('ledger-return', 'the ledger: it returned', 'plain', **same('success: 7'), recorded=recorded(7)),
    Row('ledger-failure', 'the ledger: it failed', 'plain', **same('failed: no'), recorded=recorded(ToolFailed('no'))),
    Row(
        'ledger-retry',
        'the ledger: it asked to be called again',
        'plain',
        **same('retried'),
        recorded=recorded(ModelRetry('no')),
    ),
    Row(
        'ledger-gone',
        'the ledger: it returned; the run has no such tool',
        'missing',
        **same('success: 7'),
        recorded=recorded(7),
    ),
    Row(
        'ledger-approval',
        'the ledger: it asked for approval, and did nothing else',
        'plain',
        **same('approval'),
        recorded=recorded(ApprovalRequired(metadata={'why': 'dear'})),
    ),
    Row(
        'ledger-deferred',
        'the ledger: it deferred itself, and did nothing else',
        'plain',
        **same('external'),
        recorded=recorded(CallDeferred(metadata={'job': 1})),
    ),
    Row(
        'ledger-approval-gone',
        'the ledger: it asked for approval; the run has no such tool',
        'missing',
        **same('unknown'),
        recorded=recorded(ApprovalRequired()),
    ),
    Row(
        'approved-and-ran',
        'an accepted approval, and the ledger: it returned',
        'ask',
        **same('success: 7'),
        resume=accepted(approvals=True),
        recorded=recorded(7),
    ),
    Row(
        'accepted-over-return',
        'an accepted external result, and the ledger: it returned',
        'outside',
        **same('success: 42'),
        resume=accepted(calls=42),
        recorded=recorded(7),
    ),
    Row(
        'accepted-over-ledger',
        'an accepted external result, and the ledger: it deferred itself',
        'defers',
        **same('success: 42'),
        resume=accepted(calls=42),
        recorded=recorded(CallDeferred()),
    ),
]


def markdown() -> str:
    """Print the table for a page."""
    lines = ['| what there is of the call | never | declared | always |', '| --- | --- | --- | --- |']
    lines += [f'| {row.holds} | {row.never} | {row.declared} | {row.always} |' for row in ROWS]
    return '\n'.join(lines)


def restored(row: Row) -> list[ModelMessage]:
    call = ToolCallPart(row.tool, dict(row.arguments), tool_call_id=row.tool)
    return [ModelResponse(parts=[call]), *row.after]


if __name__ == '__main__':
    print(markdown())
