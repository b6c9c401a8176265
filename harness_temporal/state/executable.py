"""Run an agent thread by thread (state-and-resume seed)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, cast
from uuid import uuid4

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import UsageLimits

from harness_temporal.errors import DeferredResumeError, InputError, RunError
from harness_temporal.records import utc_now
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.deferred_checks import check_resume
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.environments import EnvironmentSource
from harness_temporal.state.progress import RunProgress
from harness_temporal.state.recovery import check_policy, read_recorded
from harness_temporal.state.results import OutputT, RunResult
from harness_temporal.state.running import Run
from harness_temporal.state.starting import RunStart
from harness_temporal.state.stream import RunStream
from harness_temporal.step_persistence.effects import ToolRecovery


def _no_environments() -> Mapping[str, EnvironmentSource]:
    return {}


@dataclass(frozen=True, kw_only=True)
class RunBindings(Generic[AgentDepsT]):
    """The authority of one run. It is made anew for each: nothing of it is in a state."""

    deps: AgentDepsT = None  # pyright: ignore[reportAssignmentType] (as in `Agent.run`)
    model: Model | KnownModelName | str | None = None
    toolsets: Sequence[AbstractToolset[AgentDepsT]] = ()
    capabilities: Sequence[AbstractCapability[AgentDepsT]] = ()
    usage_limits: UsageLimits | None = None
    deferred_tools_supported: bool = True
    """Whether somebody will answer a suspended run. If not, tools that need it are hidden, and requests denied."""
    environments: Mapping[str, EnvironmentSource] = field(default_factory=_no_environments)
    """Mounted environments by name. Their data is in the exported state; restoring it is up to them."""


def _random_run_id() -> str:
    return f'run-{uuid4().hex}'


class AgentExecutable(Generic[AgentDepsT, OutputT]):
    """An agent whose threads are continued from `HarnessState`.

    Args:
        agent: The agent.
        now: The clock, for the results that are made up for unanswered calls.
        new_run_id: Draws the id of a run. In workflow code give one that is deterministic.
    """

    def __init__(
        self,
        agent: AbstractAgent[AgentDepsT, OutputT],
        *,
        now: Callable[[], datetime] = utc_now,
        new_run_id: Callable[[], str] = _random_run_id,
    ) -> None:
        self._agent = agent
        self._now = now
        self._new_run_id = new_run_id

    async def run(
        self,
        user_prompt: str | Sequence[UserContent] | None = None,
        *,
        bindings: RunBindings[AgentDepsT],
        previous_state: HarnessState | None = None,
        deferred_resume: DeferredToolResume | None = None,
        tool_recovery: ToolRecovery = 'declared',
        recorded_outcomes: Mapping[str, bytes] | None = None,
    ) -> RunResult[OutputT]:
        """Run the agent once on a thread, and return how it ended.

        What the model or a tool raises becomes a `failed` result. What keeps the run from beginning is raised, and so
        are this package's own errors. An agent with output validators has to have `DeferredToolRequests` among its
        output types, since Pydantic AI lets nobody add it.

        Args:
            user_prompt: New input. It is put after the results of restored calls. If these suspend the run again, or
                complete it, the input was not used and is not in the result's state.
            bindings: The authority of this run.
            previous_state: What the thread goes on from; without it a new thread begins, with a random id.
            deferred_resume: Answers to the calls that the thread waits for.
            tool_recovery: Whether calls of `previous_state` whose results are missing run again: `never`, those of
                tools declared with `recovery_retryable`, or `always`. It does not apply to calls made in this run.
            recorded_outcomes: What an effect ledger holds of such calls (`ToolEffectRecord.value`), by
                `tool_call_id`. A recorded outcome is used whatever the policy.

        Raises:
            ConfigurationError: `tool_recovery` is no policy.
            InputError: The prompt is empty or of a wrong type, or there is neither a prompt nor a history.
            DeferredResumeError: The answers do not fit the requests, the history or the tools. Nothing ran.
            RunError: `previous_state` is none, or two of its open calls have one id.
            RunCleanupError: The run ended, but closing it failed.
        """
        run = self.prepare(
            user_prompt,
            bindings=bindings,
            previous_state=previous_state,
            deferred_resume=deferred_resume,
            tool_recovery=tool_recovery,
            recorded_outcomes=recorded_outcomes,
        )
        async for _ in run.events():
            pass
        return cast('RunResult[OutputT]', run.delivered())

    def stream(
        self,
        user_prompt: str | Sequence[UserContent] | None = None,
        *,
        bindings: RunBindings[AgentDepsT],
        previous_state: HarnessState | None = None,
        deferred_resume: DeferredToolResume | None = None,
        tool_recovery: ToolRecovery = 'declared',
        recorded_outcomes: Mapping[str, bytes] | None = None,
    ) -> RunStream[OutputT]:
        """Run the agent once on a thread, and give its events as they come.

        Takes what `run` takes, and raises what it raises before anything runs, here and not on entering.
        """
        run = self.prepare(
            user_prompt,
            bindings=bindings,
            previous_state=previous_state,
            deferred_resume=deferred_resume,
            tool_recovery=tool_recovery,
            recorded_outcomes=recorded_outcomes,
            streaming=True,
        )
        return RunStream(run)

    def prepare(
        self,
        user_prompt: str | Sequence[UserContent] | None = None,
        *,
        bindings: RunBindings[AgentDepsT],
        previous_state: HarnessState | None = None,
        deferred_resume: DeferredToolResume | None = None,
        tool_recovery: ToolRecovery = 'declared',
        recorded_outcomes: Mapping[str, bytes] | None = None,
        streaming: bool = False,
        conversation_id: str | None = None,
        progress: RunProgress | None = None,
        pauses: Callable[[int, Sequence[ModelMessage]], bool] = lambda walked, messages: False,
    ) -> Run:
        """Check what a run is to start with, and return it for a host that drives it. Nothing runs yet.

        It takes and raises what `run` does. Further: `conversation_id` is the run's conversation, if that is not the
        thread; `progress` is where the run goes on, if it has begun elsewhere; and `pauses` is asked before each step
        but the first whether the run is to stop there, to go on elsewhere. It is told how many messages the steps that
        were made here have gone through, which is what doing them again would cost, and the history to go on with.
        """
        check_policy(tool_recovery)
        _check_input(user_prompt)
        _check_state(previous_state)
        history = previous_state.message_history if previous_state is not None else ()
        resume = _checked_resume(deferred_resume, previous_state, history)
        if user_prompt is None and not history:
            raise InputError('input_missing', 'There is neither a prompt nor a history to go on from.')
        state = previous_state if previous_state is not None else HarnessState.new()
        start = RunStart(
            agent=self._agent,
            bindings=bindings,
            state=state,
            history=history,
            prompt=user_prompt,
            resume=resume,
            policy=tool_recovery,
            recorded=read_recorded(recorded_outcomes or {}),
            run_id=self._new_run_id(),
            conversation_id=conversation_id or state.thread_id,
            streaming=streaming,
            now=self._now,
            progress=progress,
            pauses=pauses,
        )
        return Run(start)


def _check_state(state: object) -> None:
    if state is not None and not isinstance(state, HarnessState):
        raise RunError('state_invalid', f'`previous_state` is a `HarnessState`, not a {type(state).__name__}.')


def _check_input(user_prompt: object) -> None:
    if user_prompt is None:
        return
    if not isinstance(user_prompt, Sequence) or isinstance(user_prompt, bytes):
        raise InputError('input_invalid', f'A prompt is text or a list of content, not a {type(user_prompt).__name__}.')
    if not user_prompt:
        raise InputError('input_empty', 'The prompt is empty: pass `None` to go on without one.')


def _checked_resume(
    resume: object, previous_state: HarnessState | None, history: Sequence[Any]
) -> DeferredToolResume | None:
    if resume is None:
        return None
    if not isinstance(resume, DeferredToolResume):
        raise DeferredResumeError('deferred_resume_invalid', '`deferred_resume` is a `DeferredToolResume`.')
    if previous_state is None:
        raise DeferredResumeError('deferred_state_required', 'Answers need the state of the run that asked.')
    return check_resume(resume, history)
