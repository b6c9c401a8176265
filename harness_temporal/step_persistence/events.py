"""What the capability tells listeners of the run's event stream."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent

from harness_temporal.records import SnapshotState


@dataclass(kw_only=True)
class SnapshotSaved(CapabilityEvent, namespace='step_persistence', name='snapshot_saved', dispatch='immediate'):
    """A snapshot was written. The store is the truth: a replay may tell of it again, and a listener cannot undo it.

    Listen with `hooks.on.event(SnapshotSaved)`. Listeners run at once, since nobody reads the stream past a run's last
    node, where the last snapshot is saved.
    """

    persistence_run_id: str
    conversation_id: str | None
    step_index: int
    state: SnapshotState
