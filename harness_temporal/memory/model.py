"""A model that sees the memory with every request: where the request is sent from, the notebook is read.

On a durable engine that is inside the unit that sends the request. So the reading needs no unit of its own, nothing of
the notebook is in the engine's history, and a replay has the response to what was seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

# Not public. A model is not given the context of a request that is not streamed, and a Temporal activity calls no hook
# of the capability that could keep it.
from pydantic_ai._run_context import get_current_run_context
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from harness_temporal.errors import HarnessError
from harness_temporal.memory.injection import with_memory


class MemoryModel(WrapperModel):
    """Adds what `load` returns to each request of the wrapped model."""

    def __init__(self, wrapped: Model, load: Callable[[RunContext[Any]], Awaitable[str]]) -> None:
        super().__init__(wrapped)
        self._load = load

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request with the memory in it."""
        messages = await self._remembering(messages, get_current_run_context())
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Send a request with the memory in it."""
        messages = await self._remembering(messages, run_context or get_current_run_context())
        async with super().request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as response_stream:
            yield response_stream

    async def _remembering(self, messages: list[ModelMessage], ctx: RunContext[Any] | None) -> list[ModelMessage]:
        if ctx is None:
            raise HarnessError('`Memory` works within a run: its model was called outside of one.')
        return with_memory(messages, await self._load(ctx))
