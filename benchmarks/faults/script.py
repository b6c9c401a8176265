"""What the agents of the campaign do: the prompt says it, and the final answer tells what every call gave.

A prompt is the JSON of a list of steps, each a list of tool names. A call's id is its place, `call-{step}-{number}`,
so the calls of all runs share their ids, as those of real providers may. Those of a thread's messages and of delegates
have a prefix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

PartT = TypeVar('PartT', ToolReturnPart, UserPromptPart, TextPart)
Steps = Sequence[Sequence[str]]
DELEGATED = [['pay']]
"""The steps of the run that a delegating tool starts."""
DELEGATING = frozenset({'delegate', 'hand_over'})
_TOLD = 200


def prompt(steps: Steps, prefix: str = '', *, again: int = 0) -> str:
    """Say what to do. Said `again`, it goes on with what was begun."""
    return json.dumps({'prefix': prefix, 'steps': steps, 'again': again})


def calls(steps: Steps, prefix: str = '') -> dict[str, str]:
    """Return the tools by call id, those of delegates too."""
    found: dict[str, str] = {}
    for step, names in enumerate(steps):
        for number, name in enumerate(names):
            call_id = f'{prefix}call-{step}-{number}'
            found[call_id] = name
            if name in DELEGATING:
                found |= calls(DELEGATED, delegate_prefix(call_id))
    return found


def delegate_prefix(call_id: str) -> str:
    return f'{call_id}.'


def message_prefix(number: int) -> str:
    """Return how the ids of the calls for one message of a thread begin."""
    return f'message-{number}-'


def delegating_call(call_id: str) -> str | None:
    """Return the id of the call that started the run in which this one was made, if one did."""
    return call_id.rpartition('.')[0] or None


def given(call_id: str) -> str:
    """Return how what a tool gives begins."""
    return f'done {call_id}'


def respond(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tools of the next step, and at the end tell what each call gave."""
    told = json.loads(prompts(messages)[-1])
    mine = f'{told["prefix"]}call-'
    step = sum(
        any(isinstance(part, ToolCallPart) and part.tool_call_id.startswith(mine) for part in message.parts)
        for message in messages
        if isinstance(message, ModelResponse)
    )
    if step < len(told['steps']):
        names = told['steps'][step]
        calls = [ToolCallPart(name, {}, tool_call_id=f'{mine}{step}-{number}') for number, name in enumerate(names)]
        return ModelResponse(parts=calls)
    returns = {
        part.tool_call_id: str(part.content)[:_TOLD]
        for part in _parts(messages, ToolReturnPart)
        if part.tool_call_id.startswith(mine)
    }
    return ModelResponse(parts=[TextPart(json.dumps(returns))])


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what the user said."""
    return [part.content for part in _parts(messages, UserPromptPart) if isinstance(part.content, str)]


def answers(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what the model answered, beside its calls."""
    return [part.content for part in _parts(messages, TextPart)]


def _parts(messages: Sequence[ModelMessage], kind: type[PartT]) -> Iterator[PartT]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, kind):
                yield part
