"""One agent run as the body of a workflow: what goes in, what comes out, and how it runs. Workflow-side."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import UsageLimits
from temporalio import workflow

from harness_temporal.errors import ConfigurationError
from harness_temporal.history import decode_message
from harness_temporal.identity import resolve_run_id
from harness_temporal.step_persistence.context import current_run_id
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.durability import DEFAULT_RETRY_POLICY
from harness_temporal.temporal.snapshots import LOAD_SNAPSHOT_ACTIVITY, LoadedSnapshot, LoadSnapshot

worker_agents: ContextVar[AgentRegistry | None] = ContextVar('harness_temporal.worker_agents', default=None)
"""The agents of the worker that runs this workflow. The interceptor sets it."""

_LOAD_TIMEOUT = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class SnapshotReference:
    """The newest snapshot of a run, to continue or fork from."""

    run_id: str
    include_interrupted: bool = False
    """Also take one whose tool calls are not settled. Look at the run's unresolved tool effects first."""


@dataclass(frozen=True, kw_only=True)
class AgentRunInput:
    """What a run starts with."""

    agent: str
    """Name of an agent of the worker."""
    prompt: str | None = None
    """`None` continues a snapshot as it is."""
    deps: Any = None
    """The agent's dependencies as JSON; validated against its `deps_type`."""
    conversation_id: str | None = None
    parent_run_id: str | None = None
    """By default the run whose tool started this workflow."""
    continue_from: SnapshotReference | None = None
    """Go on from this snapshot, in its conversation unless another is given."""
    fork_from: SnapshotReference | None = None
    """Branch off this snapshot, into a conversation of its own unless one is given."""
    usage_limits: UsageLimits | None = None


@dataclass(frozen=True, kw_only=True)
class AgentRunOutput:
    """What a run ends with."""

    status: Literal['completed', 'suspended']
    """`suspended`: the output is a `DeferredToolRequests` that waits for answers."""
    output: Any
    run_id: str
    """The id the run is persisted under."""
    conversation_id: str | None
    snapshot: SnapshotReference
    """What to continue or fork from."""


async def run_agent(input: AgentRunInput) -> AgentRunOutput:
    """Run one of the worker's agents. Call it from a workflow's run method.

    Raises:
        ConfigurationError: The worker has no agent of that name, its dependencies do not fit, or both snapshots are
            given.
        SnapshotNotFoundError: The run to go on from has no snapshot (in an `ActivityError`, as its type's name).
    """
    registry = worker_agents.get()
    if registry is None:
        raise ConfigurationError('`run_agent` works in a workflow whose worker has `HarnessPlugin`.')
    agent = registry.agent(input.agent)
    persistence = registry.persistence(input.agent)
    history, conversation_id = await _starting_point(input)
    token = current_run_id.set(input.parent_run_id) if input.parent_run_id is not None else None
    try:
        result = await agent.run(
            input.prompt,
            deps=registry.deps(input.agent, input.deps),
            message_history=history,
            conversation_id=conversation_id,
            usage_limits=input.usage_limits,
        )
    finally:
        if token is not None:
            current_run_id.reset(token)
    run_id = resolve_run_id(
        explicit=persistence.run_id, agent_name=persistence.agent_name, context_run_id=result.run_id
    )
    suspended = isinstance(result.output, DeferredToolRequests)
    return AgentRunOutput(
        status='suspended' if suspended else 'completed',
        output=result.output,
        run_id=run_id,
        conversation_id=result.conversation_id,
        snapshot=SnapshotReference(run_id=run_id, include_interrupted=suspended),
    )


async def _starting_point(input: AgentRunInput) -> tuple[list[ModelMessage] | None, str | None]:
    if input.continue_from is not None and input.fork_from is not None:
        raise ConfigurationError('Give `continue_from` or `fork_from`, not both.')
    source = input.continue_from or input.fork_from
    if source is None:
        return None, input.conversation_id
    loaded = await workflow.execute_activity(
        LOAD_SNAPSHOT_ACTIVITY,
        LoadSnapshot(agent=input.agent, run_id=source.run_id, include_interrupted=source.include_interrupted),
        result_type=LoadedSnapshot,
        start_to_close_timeout=_LOAD_TIMEOUT,
        retry_policy=DEFAULT_RETRY_POLICY,
        summary=f'load snapshot of {source.run_id}',
    )
    conversation_id = input.conversation_id
    if conversation_id is None:
        conversation_id = loaded.conversation_id if input.continue_from is not None else 'new'
    return [decode_message(body.encode()) for body in loaded.bodies], conversation_id
