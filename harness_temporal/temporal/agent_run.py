"""One agent run as the body of a workflow: what goes in, what comes out, and how it runs. Workflow-side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Never

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.usage import RunUsage, UsageLimits
from temporalio import workflow

from harness_temporal.context_variables import having
from harness_temporal.errors import ConfigurationError
from harness_temporal.identity import resolve_run_id
from harness_temporal.state.deferred_documents import read_resume
from harness_temporal.state.executable import AgentExecutable, RunBindings
from harness_temporal.state.results import RunResult
from harness_temporal.state.running import Run
from harness_temporal.step_persistence.context import Behind, continuing, current_run_id
from harness_temporal.step_persistence.effects import ToolRecovery
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.continuation import ContinuedAgentRun, HistoryBudget, Pausing, continued
from harness_temporal.temporal.sent_requests import sent_requests
from harness_temporal.temporal.starting_point import starting_point
from harness_temporal.temporal.visibility import attributes

worker_agents: ContextVar[AgentRegistry | None] = ContextVar('harness_temporal.worker_agents', default=None)
"""The agents of the worker that runs this workflow. The interceptor sets it."""


@dataclass(frozen=True, kw_only=True)
class AgentRunInput:
    """What a run starts with."""

    agent: str
    """Name of an agent of the worker."""
    prompt: str | None = None
    """`None` continues a snapshot or state as it is."""
    deps: Any = None
    """The agent's dependencies as JSON; validated against its `deps_type`."""
    conversation_id: str | None = None
    """By default that of the run to go on from, else the thread's id."""
    parent_run_id: str | None = None
    """By default the run whose tool started this workflow."""
    continue_from: SnapshotReference | None = None
    """Go on from this snapshot, in its conversation unless another is given."""
    fork_from: SnapshotReference | None = None
    """Branch off this snapshot, into a thread and conversation of its own."""
    state: CarriedState | None = None
    """The thread to go on with. With a snapshot, only its capabilities' state and its id are used."""
    answers: Any = None
    """`resume_document` of the answers to the calls that the run to go on from waits for."""
    tool_recovery: ToolRecovery = 'declared'
    """Whether calls of an interrupted run whose outcome nobody recorded run again. See docs/tool-recovery.md."""
    usage_limits: UsageLimits | None = None
    history_budget: HistoryBudget = field(default_factory=HistoryBudget)
    going_on: ContinuedAgentRun | None = None
    """Set by a run that continues as new."""
    search_attributes: bool = False
    """Whether the namespace has the search attributes of `visibility.attributes`, so that the run can set them."""


@dataclass(frozen=True, kw_only=True)
class AgentRunOutput:
    """What a run ends with. A run that fails raises instead: the workflow fails."""

    status: Literal['completed', 'suspended', 'cancelled']
    """`suspended`: the output is a `DeferredToolRequests` that waits for answers. `cancelled`: one of the agent's
    capabilities or tools cancelled the run; there is no output."""
    output: Any
    run_id: str
    """The id the run is persisted under."""
    conversation_id: str | None
    snapshot: SnapshotReference
    """What to continue or fork from."""
    state: CarriedState | None = None
    """The thread, to go on with. Only a cancelled run may have none."""
    usage: RunUsage = field(default_factory=RunUsage)


async def _continue_as_new(input: AgentRunInput) -> Never:
    await workflow.wait_condition(workflow.all_handlers_finished)
    workflow.continue_as_new(input)


def _nobody(run_id: str, run: Run) -> None:
    """Nobody wants to know."""


async def run_agent(
    input: AgentRunInput,
    *,
    continue_as_new: Callable[[AgentRunInput], Awaitable[Never]] = _continue_as_new,
    on_begin: Callable[[str, Run], None] = _nobody,
) -> AgentRunOutput:
    """Run one of the worker's agents. Call it from a workflow's run method.

    Args:
        input: What the run starts with.
        continue_as_new: Is called with the input to go on with, between two steps, when the history budget is spent.
            By default the workflow continues as new with it as its only argument.
        on_begin: Is called with the id that the run is persisted under and the run, before its first step here.

    Raises:
        ConfigurationError: The worker has no agent of that name, its dependencies do not fit, or both snapshots are
            given.
        SnapshotNotFoundError: The run to go on from has no snapshot (in an `ActivityError`, as its type's name).
        FrontierLostError: It called tools for a response that the store does not hold (likewise).
        RunActiveError: It is still running (likewise).
        DeferredResumeError: The answers are not answers, or do not fit.
    """
    registry, requests = worker_agents.get(), sent_requests.get()
    if registry is None or requests is None:
        raise ConfigurationError('`run_agent` works in a workflow whose worker has `HarnessPlugin`.')
    agent = registry.agent(input.agent)
    run, stored_messages = await _prepared(input, registry, agent)
    run_id = _persisted_id(run, input, registry)
    on_begin(run_id, run)
    if input.search_attributes and input.going_on is None:
        parent_run_id = input.parent_run_id or current_run_id.get()
        attributes.tell_begun(conversation_id=run.conversation_id, parent_run_id=parent_run_id)
    parent = input.parent_run_id if input.parent_run_id is not None else current_run_id.get()
    behind = _behind(input, registry, stored_messages)
    with having(current_run_id, parent), continuing(behind), requests.of_one_run():
        async for _ in run.events():
            pass
    if run.paused is not None:
        going_on, carried = await continued(input.agent, run)
        await continue_as_new(_input_to_go_on_with(input, going_on, carried))
    if input.search_attributes:
        _tell_ended(run.delivered())
    return _output(run, run_id)


async def _prepared(input: AgentRunInput, registry: AgentRegistry, agent: AbstractAgent[Any, Any]) -> tuple[Run, int]:
    """Return the run, and how many messages of its history are in the store."""
    run_id = registry.durability(input.agent).next_registration_id()
    start = await starting_point(
        input.agent,
        identity=run_id,
        state=input.state,
        continue_from=input.continue_from,
        fork_from=input.fork_from,
        conversation_id=input.conversation_id,
    )
    executable = AgentExecutable(agent, now=workflow.now, new_run_id=lambda: run_id)
    run = executable.prepare(
        input.prompt,
        bindings=RunBindings(deps=registry.deps(input.agent, input.deps), usage_limits=input.usage_limits),
        previous_state=start.state,
        deferred_resume=read_resume(input.answers) if input.answers is not None else None,
        tool_recovery=input.tool_recovery,
        recorded_outcomes=start.outcomes,
        conversation_id=start.conversation_id,
        progress=input.going_on.progress if input.going_on is not None else None,
        pauses=Pausing(input.history_budget),
    )
    return run, start.stored_messages


def _tell_ended(result: RunResult[Any]) -> None:
    waiting = result.deferred is not None and bool(result.deferred.approvals)
    attributes.tell_status(result.status, waiting_for_approval=waiting)


def _input_to_go_on_with(input: AgentRunInput, going_on: ContinuedAgentRun, carried: CarriedState) -> AgentRunInput:
    """What the run was begun with is in its history by now, and is not to be done again."""
    return replace(
        input,
        prompt=None,
        answers=None,
        continue_from=None,
        fork_from=None,
        conversation_id=going_on.conversation_id,
        state=carried,
        going_on=going_on,
    )


def _behind(input: AgentRunInput, registry: AgentRegistry, stored_messages: int) -> dict[str, Behind]:
    if input.going_on is not None:
        return {name: Behind(continued=continued_run) for name, continued_run in input.going_on.behind.items()}
    # The history was loaded from the store of this one.
    loaded_by = registry.persistence(input.agent).id
    return {loaded_by: Behind(stored_messages=stored_messages)} if loaded_by is not None else {}


def _persisted_id(run: Run, input: AgentRunInput, registry: AgentRegistry) -> str:
    if input.going_on is not None:
        return input.going_on.run_id
    persistence = registry.persistence(input.agent)
    return resolve_run_id(explicit=persistence.run_id, agent_name=persistence.agent_name, context_run_id=run.run_id)


def _output(run: Run, run_id: str) -> AgentRunOutput:
    result = run.delivered()
    if result.status == 'failed':
        if result.exception is not None:
            raise result.exception
        # What is no exception, such as a repeated call id, becomes one.
        result.raise_for_status()
    assert result.status != 'failed'
    suspended = result.status == 'suspended'
    snapshot = SnapshotReference(run_id=run_id, include_interrupted=suspended)
    state = CarriedState.of(result.state, stored=snapshot) if result.state is not None else None
    return AgentRunOutput(
        status=result.status,
        output=result.deferred if suspended else result.output,
        run_id=run_id,
        conversation_id=run.conversation_id,
        snapshot=snapshot,
        state=state,
        usage=result.usage,
    )
