"""What the agents of the campaign do: the prompt says it, and the final answer tells what every call gave.

A prompt is the JSON of a list of steps, each a list of tool names. A call's id is its place, `call-{step}-{number}`,
so the calls of all runs share their ids, as those of real providers may.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

Steps = Sequence[Sequence[str]]
DELEGATED = [['pay']]
"""The steps of the run that the tool `delegate` starts."""
_TOLD = 200


def prompt(steps: Steps, prefix: str = '') -> str:
    return json.dumps({'prefix': prefix, 'steps': steps})


def calls(steps: Steps, prefix: str = '') -> dict[str, str]:
    """Return the tools by call id, those of delegates too."""
    found: dict[str, str] = {}
    for step, names in enumerate(steps):
        for number, name in enumerate(names):
            call_id = f'{prefix}call-{step}-{number}'
            found[call_id] = name
            if name == 'delegate':
                found |= calls(DELEGATED, delegate_prefix(call_id))
    return found


def delegate_prefix(call_id: str) -> str:
    return f'{call_id}.'


def is_delegated(call_id: str) -> bool:
    return '.' in call_id


def given(call_id: str) -> str:
    """Return how what a tool gives begins."""
    return f'done {call_id}'


def respond(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tools of the next step, and at the end tell what each call gave."""
    told = json.loads(
        next(
            part.content
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart) and isinstance(part.content, str)
        )
    )
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step < len(told['steps']):
        names = told['steps'][step]
        return ModelResponse(
            parts=[
                ToolCallPart(name, {}, tool_call_id=f'{told["prefix"]}call-{step}-{number}')
                for number, name in enumerate(names)
            ]
        )
    returns = {
        part.tool_call_id: str(part.content)[:_TOLD]
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    return ModelResponse(parts=[TextPart(json.dumps(returns))])
