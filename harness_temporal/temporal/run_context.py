"""What of a run crosses into its activities."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from pydantic_ai.durable_exec.temporal import TemporalRunContext
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext
from typing_extensions import TypeVar

from harness_temporal.step_persistence.capability import StepPersistence

AgentDepsT = TypeVar('AgentDepsT', default=object, covariant=True)
"""As in `TemporalRunContext`, whose parameter is covariant."""

FRAMES_KEY = 'harness_frames'
"""Key of the boundary frames in a serialized run context. It is in histories for ever."""

dispatching_request: ContextVar[ModelRequestContext | None] = ContextVar('harness_temporal.request', default=None)
"""The model request that workflow code is about to hand to an activity, as core shapes it."""


class HarnessRunContext(TemporalRunContext[AgentDepsT]):
    """A `TemporalRunContext` that also carries what an activity needs to write its boundaries.

    Subclass it to carry more fields of your own, and pass it as `HarnessDurability(run_context_type=...)`.
    """

    @classmethod
    def serialize_run_context(cls, ctx: RunContext[Any]) -> dict[str, Any]:
        """Add a frame per `StepPersistence` of the run."""
        serialized = super().serialize_run_context(ctx)
        request = dispatching_request.get()
        frames = [
            frame
            for capability in ctx.capabilities.values()
            if isinstance(capability, StepPersistence)
            and (frame := capability.frame(ctx, request.messages if request is not None else None)) is not None
        ]
        if frames:
            serialized[FRAMES_KEY] = frames
        return serialized
