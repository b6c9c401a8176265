"""What of a run crosses into its activities."""

from __future__ import annotations

from typing import Any

from pydantic_ai.durable_exec.temporal import TemporalRunContext
from pydantic_ai.tools import RunContext
from typing_extensions import TypeVar

from harness_temporal.step_persistence.capability import StepPersistence

AgentDepsT = TypeVar('AgentDepsT', default=object, covariant=True)
"""As in `TemporalRunContext`, whose parameter is covariant."""

FRAMES_KEY = 'harness_frames'
"""Key of the boundary frames in a serialized run context. It is in histories for ever."""


class HarnessRunContext(TemporalRunContext[AgentDepsT]):
    """A `TemporalRunContext` that also carries what an activity needs to write its boundaries.

    Subclass it to carry more fields of your own, and pass it as `HarnessDurability(run_context_type=...)`.
    """

    @classmethod
    def serialize_run_context(cls, ctx: RunContext[Any]) -> dict[str, Any]:
        """Add a frame per `StepPersistence` of the run."""
        serialized = super().serialize_run_context(ctx)
        frames = [
            frame
            for capability in ctx.capabilities.values()
            if isinstance(capability, StepPersistence) and (frame := capability.frame(ctx)) is not None
        ]
        if frames:
            serialized[FRAMES_KEY] = frames
        return serialized
