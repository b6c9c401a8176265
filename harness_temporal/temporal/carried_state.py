"""A thread's state on its way into and out of workflows: by value, or with its history left in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from harness_temporal.errors import SnapshotNotFoundError
from harness_temporal.history import encode_message
from harness_temporal.state.envelope import HarnessState
from harness_temporal.stores.protocol import StepStore

BY_VALUE_BYTES = 64 * 1024
"""How large a history may be to go by value."""


@dataclass(frozen=True, kw_only=True)
class SnapshotReference:
    """The newest snapshot of a run, to continue or fork from."""

    run_id: str
    include_interrupted: bool = False
    """Go on from where the run stood, also if its tool calls are not settled: what the ledger holds of them is used,
    and `tool_recovery` decides about the others."""


@dataclass(frozen=True, kw_only=True)
class CarriedState:
    """A `HarnessState` as it crosses. In a workflow's result, `load` gives the state."""

    document: Any
    """The state; without its messages where `history` says where they are."""
    history: SnapshotReference | None = None

    @classmethod
    def of(cls, state: HarnessState, *, stored: SnapshotReference) -> Self:
        """Carry a state by value if its history is small; `stored` says where the history is otherwise."""
        if sum(map(len, state.encoded_history)) <= BY_VALUE_BYTES:
            return cls(document=state)
        return cls(document=state.with_encoded_history(()), history=stored)

    async def load(self, store: StepStore) -> HarnessState:
        """Return the state; `store` is that of the run.

        Raises:
            StateEnvelopeError: The document is no state.
            SnapshotNotFoundError: The history is no longer in the store.
        """
        state = self.without_history()
        if self.history is None:
            return state
        snapshot = await store.latest_snapshot(run_id=self.history.run_id, include_interrupted=True)
        if snapshot is None:
            raise SnapshotNotFoundError(self.history.run_id, include_interrupted=True)
        return state.with_encoded_history(encode_message(message).body for message in snapshot.messages)

    def without_history(self) -> HarnessState:
        """Return the state as it crossed.

        Raises:
            StateEnvelopeError: The document is no state.
        """
        return HarnessState.model_validate(self.document)
