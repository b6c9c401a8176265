"""What an agent run in a workflow starts from. Workflow-side."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from temporalio import workflow

from harness_temporal.errors import ConfigurationError
from harness_temporal.state.envelope import HarnessState
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.durability import (
    DEFAULT_HEARTBEAT_TIMEOUT,
    DEFAULT_RETRY_POLICY,
    DEFAULT_START_TO_CLOSE_TIMEOUT,
)
from harness_temporal.temporal.snapshots import LOAD_SNAPSHOT_ACTIVITY, LoadedSnapshot, LoadSnapshot


@dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """A thread, and what is recorded of the calls that its history leaves open."""

    state: HarnessState
    conversation_id: str | None
    outcomes: dict[str, bytes] = field(default_factory=dict[str, bytes])
    stored_messages: int = 0
    """How many messages of the history the agent's store has."""


async def starting_point(
    agent: str,
    *,
    identity: str,
    state: CarriedState | None,
    continue_from: SnapshotReference | None,
    fork_from: SnapshotReference | None,
    conversation_id: str | None,
) -> StartingPoint:
    """Load what a run starts from. `identity` is unlike that of any other run, and the same in every replay.

    Raises:
        ConfigurationError: Both snapshots are given.
        StateEnvelopeError: `state` is no state.
    """
    if continue_from is not None and fork_from is not None:
        raise ConfigurationError('Give `continue_from` or `fork_from`, not both.')
    thread = state.without_history() if state is not None else None
    source = continue_from or fork_from or (state.history if state is not None else None)
    loaded = await load_snapshot(agent, source) if source is not None else None
    if thread is None:
        thread = HarnessState.new(thread_id=_thread_id(identity))
    elif fork_from is not None:
        thread = thread.fork(thread_id=_thread_id(identity))
    if loaded is None:
        return StartingPoint(state=thread, conversation_id=conversation_id)
    if conversation_id is None and continue_from is not None:
        conversation_id = loaded.conversation_id
    return StartingPoint(
        state=thread.with_encoded_history(body.encode() for body in loaded.bodies),
        conversation_id=conversation_id,
        outcomes={call_id: value.encode() for call_id, value in loaded.outcomes.items()},
        # Where a run stood may be a response beyond its newest snapshot.
        stored_messages=len(loaded.bodies) if source is not None and not source.include_interrupted else 0,
    )


async def load_snapshot(agent: str, source: SnapshotReference) -> LoadedSnapshot:
    """Load a snapshot in an activity."""
    return await workflow.execute_activity(
        LOAD_SNAPSHOT_ACTIVITY,
        LoadSnapshot(agent=agent, run_id=source.run_id, include_interrupted=source.include_interrupted),
        result_type=LoadedSnapshot,
        start_to_close_timeout=DEFAULT_START_TO_CLOSE_TIMEOUT,
        heartbeat_timeout=DEFAULT_HEARTBEAT_TIMEOUT,
        retry_policy=DEFAULT_RETRY_POLICY,
        summary=f'load snapshot of {source.run_id}',
    )


def _thread_id(identity: str) -> str:
    return f'thread-{hashlib.sha256(identity.encode()).hexdigest()[:32]}'
