"""A thread's state out of a step store, and into one.

A store keeps messages and effects. What capabilities and environments keep is in the state alone, so whoever goes on
from an imported run passes the state as well.
"""

from __future__ import annotations

import uuid
from typing import Final

from harness_temporal.errors import StateError
from harness_temporal.history import encode_message, snapshot_state
from harness_temporal.records import ContinuableSnapshot, RunRecord
from harness_temporal.state.envelope import HarnessState
from harness_temporal.step_persistence.frontier import load_frontier
from harness_temporal.stores.protocol import StepStore

THREAD_METADATA_KEY: Final = 'harness.thread_id'
"""In the metadata of an imported run: the thread whose state it is."""


async def export_state(store: StepStore, *, run_id: str, thread_id: str | None = None) -> HarnessState:
    """Return the messages of where a run stood as the state of a thread, by default of a new one.

    Raises:
        SnapshotNotFoundError: The run has no snapshot.
        FrontierLostError: It called tools for a response that the store does not hold.
        StateEnvelopeError: `thread_id` is none.
    """
    frontier = await load_frontier(store, run_id=run_id)
    return HarnessState.new(thread_id=thread_id).with_encoded_history(
        encode_message(message).body for message in frontier.messages
    )


async def import_state(
    store: StepStore, state: HarnessState, *, agent_name: str | None = None, run_id: str | None = None
) -> RunRecord:
    """Keep a state's messages as a run that can be resumed and forked, and return its record.

    Raises:
        DuplicateRunError: There is a run with that id.
        StateError: The state has no messages (`state_history_empty`).
    """
    messages = list(state.message_history)
    if not messages:
        raise StateError('state_history_empty', f'Thread {state.thread_id!r} has no messages to keep.')
    run = RunRecord(
        run_id=run_id if run_id is not None else f'imported-{uuid.uuid4().hex}',
        agent_name=agent_name,
        metadata={THREAD_METADATA_KEY: state.thread_id},
        registration_id=uuid.uuid4().hex,
    )
    snapshot = ContinuableSnapshot(
        run_id=run.run_id,
        agent_name=agent_name,
        step_index=0,
        messages=messages,
        timestamp=run.started_at,
        state=snapshot_state(messages),
    )
    await store.commit([run, snapshot])
    return run
