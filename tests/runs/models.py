"""Scripted models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel


class Fails:
    """A step at which the model raises."""

    def __init__(self, message: str = 'the model is down') -> None:
        self.message = message


Step = Sequence[ToolCallPart] | str | Fails


def scripted(*steps: Step) -> FunctionModel:
    """A model that gives one step after another: tool calls, an answer, or an error. It counts its own requests."""
    requests = iter(range(len(steps)))

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = steps[next(requests)]
        if isinstance(step, Fails):
            raise RuntimeError(step.message)
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(parts=list(step))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        step = steps[next(requests)]
        assert not isinstance(step, Fails)
        if isinstance(step, str):
            for word in step.split(' '):
                yield f'{word} '
        else:
            yield {
                index: DeltaToolCall(
                    name=call.tool_name, json_args=call.args_as_json_str(), tool_call_id=call.tool_call_id
                )
                for index, call in enumerate(step)
            }

    return FunctionModel(respond, stream_function=stream)


def call(name: str, call_id: str = 'call-1', **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=call_id)
