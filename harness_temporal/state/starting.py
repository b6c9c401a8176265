"""What a run is started with, and what of it Pydantic AI is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolRequests

from harness_temporal.errors import RunError
from harness_temporal.state.context import HarnessContext, PortableState, RunSetup, is_portable
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.frontier import close_unanswered, find_frontier, is_provider_suspended, with_balanced_tail
from harness_temporal.state.progress import RunProgress
from harness_temporal.state.recovery import Recorded
from harness_temporal.state.restoring import Restoration, UserPrompt
from harness_temporal.step_persistence.effects import ToolRecovery

if TYPE_CHECKING:
    from harness_temporal.state.executable import RunBindings


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """What a run was started with, checked."""

    agent: AbstractAgent[Any, Any]
    bindings: RunBindings[Any]
    state: HarnessState
    history: Sequence[ModelMessage]
    prompt: UserPrompt
    resume: DeferredToolResume | None
    policy: ToolRecovery
    recorded: Recorded
    run_id: str
    conversation_id: str
    streaming: bool
    now: Callable[[], datetime]
    progress: RunProgress | None
    pauses: Callable[[int, Sequence[ModelMessage]], bool]

    def restoration(self) -> Restoration | None:
        """Return what there is to restore, or `None` if Pydantic AI may go on from the history by itself.

        Raises:
            RunError: Two of the calls to restore have one id (`tool_call_id_repeated`).
        """
        messages = with_balanced_tail(self.history)
        frontier = find_frontier(messages)
        if frontier is None or not frontier.pending or is_provider_suspended(messages):
            return None
        recorded = self.recorded.answers or self.recorded.requests
        if self.policy == 'never' and self.resume is None and not recorded:
            # Nothing can come of any call, so none of them reaches the agent.
            return None
        if frontier.repeated:
            raise RunError(
                'tool_call_id_repeated',
                f'Calls of the last response share the ids {list(frontier.repeated)}, so their results cannot be told '
                "apart: use `tool_recovery='never'` to close them.",
            )
        return Restoration(
            messages=messages,
            frontier=frontier,
            policy=self.policy,
            resume=self.resume,
            recorded=self.recorded,
            prompt=self.prompt,
            now=self.now,
        )

    def given_history(self, restoration: Restoration | None) -> list[ModelMessage]:
        """Return the history that Pydantic AI is given: one that it can go on from without running a restored call."""
        if restoration is not None:
            return restoration.head
        messages = with_balanced_tail(self.history)
        return messages if is_provider_suspended(messages) else close_unanswered(messages, self.now())

    @property
    def renews_system_prompts(self) -> bool:
        """Whether the history's system prompts give way to those of this run's definition."""
        if self.progress is not None:
            return self.progress.renews_system_prompts
        return bool(self.history) and not is_provider_suspended(self.history)

    def setup(self, restoration: Restoration | None, context: HarnessContext) -> RunSetup:
        """Return what the capability is told of the run."""
        return RunSetup(
            context=context,
            deferred_tools_supported=self.bindings.deferred_tools_supported,
            requests=restoration.requests if restoration is not None else {},
            renews_system_prompts=self.renews_system_prompts,
        )

    def arguments(self, messages: list[ModelMessage]) -> dict[str, Any]:
        """Return the arguments for `Agent.iter`. What is empty is left out: in a workflow it may not be given."""
        bindings = self.bindings
        own = [] if is_portable(self.agent) else [PortableState[Any]()]
        arguments: dict[str, Any] = {
            'user_prompt': self.prompt,
            'message_history': messages,
            'conversation_id': self.conversation_id,
            'run_id': self.run_id,
            'usage': deepcopy(self.progress.usage) if self.progress is not None else None,
            'model': bindings.model,
            'deps': bindings.deps,
            'usage_limits': bindings.usage_limits,
            'toolsets': list(bindings.toolsets) or None,
            'capabilities': [*own, *bindings.capabilities] or None,
        }
        outputs = _output_types(self.agent)
        if bindings.deferred_tools_supported and DeferredToolRequests not in outputs:
            arguments['output_type'] = [*outputs, DeferredToolRequests]
        return arguments


def _output_types(agent: AbstractAgent[Any, Any]) -> list[Any]:
    """Return the agent's output types one by one; given as a list they may be alternatives already."""
    given: Any = agent.output_type
    return list(cast('Sequence[Any]', given)) if isinstance(given, list | tuple) else [given]
