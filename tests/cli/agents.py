"""The agents of the command line's tests. The model is scripted by the prompt; the store is the command line's."""

from __future__ import annotations

import os

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import CallDeferred
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
from pydantic_ai.tools import DeferredToolRequests

from harness_temporal import HarnessDurability, StepPersistence
from harness_temporal.stores.opening import open_store


class Desk(BaseModel):
    """Dependencies that have to fit."""

    floor: int


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Say what a tool gave, call the tool that the prompt names, or repeat the prompt."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    for part in reversed(last.parts):
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f'It gave {part.model_response_str()}.')])
        if isinstance(part, UserPromptPart) and part.content in ('floor', 'lend', 'measure'):
            return ModelResponse(parts=[ToolCallPart(part.content, {}, tool_call_id=f'call-{part.content}')])
    said = [part.content for part in last.parts if isinstance(part, UserPromptPart)]
    return ModelResponse(parts=[TextPart(f'You said {said[-1]}.')])


clerk = Agent(
    FunctionModel(answer),
    name='clerk',
    deps_type=Desk,
    output_type=[str, DeferredToolRequests],
    capabilities=[
        StepPersistence[Desk](store=open_store(os.environ['HARNESS_STORE_URL']), agent_name='clerk'),
        HarnessDurability[Desk](),
    ],
)


@clerk.tool
async def floor(ctx: RunContext[Desk]) -> str:
    return f'floor {ctx.deps.floor}'


@clerk.tool_plain(requires_approval=True)
async def lend() -> str:
    return 'a book'


@clerk.tool_plain
async def measure() -> str:
    raise CallDeferred


@clerk.tool_plain
async def pay(cents: int) -> str:
    raise AssertionError('a call whose outcome is known does not run again')
