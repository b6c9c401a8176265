"""What the Temporal UI shows of an agent run: how it began and, above its step table, how it is and what to do."""

from __future__ import annotations

from typing import Final

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests

from harness_temporal.temporal.visibility.steps import call_cell
from harness_temporal.temporal.visibility.summaries import WAITS_FOR, call_text, code

_LONGEST: Final = 500
"""Bytes of what a user or an application wrote."""


def begun(
    agent: str, prompt: str | None, *, conversation_id: str | None, continued: str | None, forked: str | None
) -> str:
    """Return what is said of a run from its start on, with the id of the run that it goes on from or branches off."""
    facts = [f'agent {code(agent, _LONGEST)}']
    if conversation_id is not None:
        facts.append(f'conversation {code(conversation_id, _LONGEST)}')
    facts += [
        f'{what} run {code(run_id, _LONGEST)}'
        for what, run_id in (('goes on from', continued), ('branches off', forked))
        if run_id is not None
    ]
    return '\n\n'.join((' · '.join(facts), *([code(prompt, _LONGEST)] if prompt is not None else [])))


def running(run_id: str) -> str:
    """Return what is said of a run that goes on."""
    return f'**running** · its steps so far, with what they said: `harness-temporal runs show {run_id}`'


def failed(run_id: str | None) -> str:
    """Return what is said of a run that failed; without an id, before it began."""
    if run_id is None:
        return '**failed** before its first step'
    return f'**failed** · it goes on from its last snapshot with `harness-temporal resume {run_id}`'


def ended(run_id: str, status: str, deferred: DeferredToolRequests | None) -> str:
    """Return what is said of a run that ended, and of the calls that it waits for."""
    if deferred is None:
        return (
            f'**{status}** · its last snapshot is where `harness-temporal resume {run_id}` goes on, `fork` branches off'
        )
    lines = [f'**{status}** · it goes on with `harness-temporal resume {run_id} --answers FILE`', '']
    lines += [_waiting(call, WAITS_FOR['approval']) for call in deferred.approvals]
    lines += [_waiting(call, WAITS_FOR['external']) for call in deferred.calls]
    return '\n'.join(lines)


def _waiting(call: ToolCallPart, what: str) -> str:
    return f'- {call_cell(call_text(call.tool_name, call.args_as_dict()))} waits for {what}'
