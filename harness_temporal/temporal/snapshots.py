"""The activity by which a workflow loads a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from harness_temporal.errors import SnapshotNotFoundError
from harness_temporal.history import encode_message
from harness_temporal.temporal.agents import AgentRegistry

LOAD_SNAPSHOT_ACTIVITY = 'harness_temporal__load_snapshot'
"""Activity name. It is in histories for ever."""


@dataclass(frozen=True, kw_only=True)
class LoadSnapshot:
    """Which snapshot to load, and from which agent's store."""

    agent: str
    run_id: str
    include_interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadedSnapshot:
    """A snapshot as it crosses: messages in their stored form, so that no side needs a schema of them."""

    bodies: list[str]
    conversation_id: str | None


def load_snapshot_activity(agents: AgentRegistry) -> Callable[..., Any]:
    """Return the activity, over the stores of a worker's agents."""

    @activity.defn(name=LOAD_SNAPSHOT_ACTIVITY)
    async def load_snapshot(wanted: LoadSnapshot) -> LoadedSnapshot:
        store = agents.persistence(wanted.agent).store
        snapshot = await store.latest_snapshot(run_id=wanted.run_id, include_interrupted=wanted.include_interrupted)
        if snapshot is None:
            raise SnapshotNotFoundError(wanted.run_id, include_interrupted=wanted.include_interrupted)
        return LoadedSnapshot(
            bodies=[encode_message(message).body.decode() for message in snapshot.messages],
            conversation_id=snapshot.conversation_id,
        )

    return load_snapshot
