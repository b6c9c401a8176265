"""Load a run's snapshot to go on from (step-persistence seed, "Continuing a delegate's investigation")."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage

from harness_temporal.errors import SnapshotNotFoundError
from harness_temporal.stores.protocol import StepStore


async def continue_run(store: StepStore, *, run_id: str, include_interrupted: bool = False) -> list[ModelMessage]:
    """Return the messages of the run's newest snapshot, for `Agent.run(message_history=...)`.

    By default only a complete one counts. Before passing `include_interrupted=True`, look at
    `store.list_unresolved_tool_effects`: resuming runs or closes the pending calls of an interrupted snapshot.

    Raises:
        SnapshotNotFoundError: There is no such snapshot.
    """
    snapshot = await store.latest_snapshot(run_id=run_id, include_interrupted=include_interrupted)
    if snapshot is None:
        raise SnapshotNotFoundError(run_id, include_interrupted=include_interrupted)
    return snapshot.messages


async def fork_run(store: StepStore, *, run_id: str, include_interrupted: bool = False) -> list[ModelMessage]:
    """Return the same as `continue_run`, for a run that branches off: give it another `conversation_id`.

    Messages are stored once, so a fork costs only what it adds.

    Raises:
        SnapshotNotFoundError: There is no such snapshot.
    """
    return await continue_run(store, run_id=run_id, include_interrupted=include_interrupted)
