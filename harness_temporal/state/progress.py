"""What a run has behind it that goes on in another process, in the middle of its work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage


@dataclass(frozen=True)
class RunPause:
    """A run that has stopped between two of its steps."""

    progress: RunProgress
    messages: list[ModelMessage]
    """The history, with the request that the next step would send."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The counters of a run between two of its steps."""

    run_id: str
    steps: int
    output_retries: int
    renews_system_prompts: bool
    """As when the run began: whether the history's system prompts give way to those of the agent."""
    usage: RunUsage = field(default_factory=RunUsage)

    @classmethod
    def of(cls, run: AgentRun[Any, Any], *, renews_system_prompts: bool) -> RunProgress:
        """Read a run's counters."""
        state = run.ctx.state
        return cls(
            run_id=state.run_id,
            steps=state.run_step,
            output_retries=state.output_retries_used,
            renews_system_prompts=renews_system_prompts,
            usage=run.usage,
        )

    def resume(self, run: AgentRun[Any, Any]) -> None:
        """Have a run that was just started go on counting. Its usage was given to it."""
        state = run.ctx.state
        # It cannot be started with that id: Pydantic AI refuses one that the history has.
        state.run_id = self.run_id
        state.run_step = self.steps
        state.output_retries_used = self.output_retries
