"""A model that does what its prompt says, and keeps what it was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel


class Caller:
    """Calls the given tools, one in each step, then says `done`."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = calls
        self.sent: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._answer, stream_function=self._stream)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(messages)
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step < len(self.calls):
            name, arguments = self.calls[step]
            return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id=f'call-{step}')])
        return ModelResponse(parts=[TextPart('done')])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(self._answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                arguments = json.dumps(part.args)
                yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    @property
    def blocks(self) -> list[list[str]]:
        """What of memory each request had."""
        return [blocks_in(messages[-1:]) for messages in self.sent]


def blocks_in(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str) and part.content.startswith('<memory')
    ]
