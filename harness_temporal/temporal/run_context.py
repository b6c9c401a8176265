"""What of a run crosses into its activities."""

from __future__ import annotations

from typing import Any

from pydantic_ai.durable_exec.temporal import TemporalRunContext
from pydantic_ai.tools import RunContext
from typing_extensions import TypeVar

from harness_temporal.errors import PluginMissingError
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.temporal.sent_requests import REQUEST_KEY
from harness_temporal.temporal.state_crossing import STATE_KEY, send_state

AgentDepsT = TypeVar('AgentDepsT', default=object, covariant=True)
"""As in `TemporalRunContext`, whose parameter is covariant."""

FRAMES_KEY = 'harness_frames'
"""Key of the boundary frames in a serialized run context. It is in histories for ever."""


class HarnessRunContext(TemporalRunContext[AgentDepsT]):
    """A `TemporalRunContext` that also carries what an activity needs to write its boundaries, and a tool its state.

    Subclass it to carry more fields of your own, and pass it as `HarnessDurability(run_context_type=...)`.
    """

    @classmethod
    def serialize_run_context(cls, ctx: RunContext[Any]) -> dict[str, Any]:
        """Add a frame per `StepPersistence` of the run, and the run's capability state if this is a tool call."""
        serialized = super().serialize_run_context(ctx)
        frames = [
            frame
            for capability in ctx.capabilities.values()
            if isinstance(capability, StepPersistence) and (frame := capability.frame(ctx)) is not None
        ]
        if frames:
            serialized[FRAMES_KEY] = frames
        state = send_state(ctx)
        if state is not None:
            serialized[STATE_KEY] = state
        return serialized

    @classmethod
    def deserialize_run_context(cls, ctx: dict[str, Any], deps: Any) -> TemporalRunContext[Any]:
        """Read the context.

        Raises:
            PluginMissingError: It is that of a model request which nobody put together: only new messages are there.
        """
        if REQUEST_KEY in ctx:
            raise PluginMissingError(
                'A worker runs the model requests of an agent with `HarnessDurability`, but not `HarnessPlugin`, so it '
                'would send the newest messages only. Pass `plugins=[HarnessPlugin(agents=[...])]` to `Client.connect`.'
            )
        return super().deserialize_run_context(ctx, deps)
