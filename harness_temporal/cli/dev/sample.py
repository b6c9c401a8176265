"""The agent of `harness-temporal dev` where nobody has one yet. Its model is scripted and needs no key."""

from __future__ import annotations

import os
from typing import Final

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, Tool

from harness_temporal.cli.opening import DEV_STORE_URL
from harness_temporal.step_persistence import StepPersistence
from harness_temporal.stores.opening import open_store
from harness_temporal.temporal import HarnessDurability
from harness_temporal.tools import recovery_retryable

_NAME: Final = 'librarian'
_HELP: Final = (
    'Hello, I am the sample agent. Say `look up TITLE`, or `lend TITLE`, which needs an approval. '
    'Run your own with `harness-temporal dev my_agents:my_agent`.'
)


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    for part in reversed(last.parts):
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(part.model_response_str())])
        if isinstance(part, UserPromptPart):
            return ModelResponse(parts=[_to_prompt(str(part.content))])
    return ModelResponse(parts=[TextPart(_HELP)])


def _to_prompt(prompt: str) -> TextPart | ToolCallPart:
    for words, tool in (('look up ', 'look_up'), ('lend ', 'lend')):
        if prompt.lower().startswith(words):
            return ToolCallPart(tool, {'title': prompt[len(words) :].strip()})
    return TextPart(_HELP)


@recovery_retryable
async def look_up(title: str) -> str:
    """Look a book up."""
    return f'{title} is on shelf 7.'


async def lend(title: str) -> str:
    """Lend a book. It happens once, whatever dies."""
    return f'{title} is lent.'


librarian = Agent(
    FunctionModel(_answer, model_name='scripted'),
    name=_NAME,
    deps_type=type(None),
    output_type=[str, DeferredToolRequests],
    tools=[look_up, Tool[None](lend, requires_approval=True)],
    capabilities=[
        StepPersistence[None](store=open_store(os.environ.get('HARNESS_STORE_URL') or DEV_STORE_URL), agent_name=_NAME),
        HarnessDurability[None](),
    ],
)
