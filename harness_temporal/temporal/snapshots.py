"""The activities by which a workflow loads and saves snapshots between an agent's runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from harness_temporal.errors import RunActiveError, SnapshotNotFoundError
from harness_temporal.history import encode_message
from harness_temporal.step_persistence import operations
from harness_temporal.step_persistence.facts import RunFacts, SnapshotFacts
from harness_temporal.step_persistence.frontier import has_ended, load_frontier
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.durability import WORKFLOW_ID_METADATA_KEY
from harness_temporal.temporal.heartbeats import heartbeats

LOAD_SNAPSHOT_ACTIVITY = 'harness_temporal__load_snapshot'
SAVE_SNAPSHOT_ACTIVITY = 'harness_temporal__save_snapshot'
"""Activity names. They are in histories for ever."""


@dataclass(frozen=True, kw_only=True)
class LoadSnapshot:
    """Which snapshot to load, and from which agent's store."""

    agent: str
    run_id: str
    include_interrupted: bool = False
    """Load where the run stood (`load_frontier`), if no workflow runs it any more."""


@dataclass(frozen=True, kw_only=True)
class LoadedSnapshot:
    """A snapshot as it crosses: messages in their stored form, so that no side needs a schema of them."""

    bodies: list[str]
    conversation_id: str | None
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    """What the ledger holds of the calls of the last response."""


@dataclass(frozen=True, kw_only=True)
class SaveSnapshot:
    """A snapshot to save between two steps of a run."""

    agent: str
    capability_id: str | None
    run: dict[str, Any]
    snapshot: dict[str, Any]


def load_snapshot_activity(agents: AgentRegistry) -> Callable[..., Any]:
    """Return the activity, over the stores of a worker's agents."""

    @activity.defn(name=LOAD_SNAPSHOT_ACTIVITY)
    async def load_snapshot(wanted: LoadSnapshot) -> LoadedSnapshot:
        store = agents.persistence(wanted.agent).store
        async with heartbeats():
            load = _load_frontier if wanted.include_interrupted else _load_complete
            return await load(store, wanted.run_id)

    return load_snapshot


def save_snapshot_activity(agents: AgentRegistry) -> Callable[..., Any]:
    """Return the activity. It gives false, having written nothing, if the store has not what the snapshot extends."""

    @activity.defn(name=SAVE_SNAPSHOT_ACTIVITY)
    async def save_snapshot(given: SaveSnapshot) -> bool:
        store = agents.persistence(given.agent, given.capability_id).store
        async with heartbeats():
            return await operations.save_snapshot(store, RunFacts.load(given.run), SnapshotFacts.load(given.snapshot))

    return save_snapshot


async def _load_complete(store: StepStore, run_id: str) -> LoadedSnapshot:
    snapshot = await store.latest_snapshot(run_id=run_id)
    if snapshot is None:
        raise SnapshotNotFoundError(run_id, include_interrupted=False)
    return LoadedSnapshot(bodies=_bodies(snapshot.messages), conversation_id=snapshot.conversation_id)


async def _load_frontier(store: StepStore, run_id: str) -> LoadedSnapshot:
    await _check_not_running(store, run_id)
    frontier = await load_frontier(store, run_id=run_id)
    return LoadedSnapshot(
        bodies=_bodies(frontier.messages),
        conversation_id=frontier.conversation_id,
        outcomes={call_id: value.decode() for call_id, value in frontier.outcomes.items()},
    )


async def _check_not_running(store: StepStore, run_id: str) -> None:
    """Refuse a run that a workflow still runs. The workflow that asks goes on from a run of its own."""
    run = await store.get_run(run_id=run_id)
    workflow_id = run.metadata.get(WORKFLOW_ID_METADATA_KEY) if run is not None else None
    if workflow_id is None or workflow_id == activity.info().workflow_id:
        return
    try:
        description = await activity.client().get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return
        raise
    # A workflow may go on after one of its runs.
    if description.status is WorkflowExecutionStatus.RUNNING and not await has_ended(store, run_id=run_id):
        raise RunActiveError(run_id, workflow_id)


def _bodies(messages: list[Any]) -> list[str]:
    return [encode_message(message).body.decode() for message in messages]
