"""How long a thread's workflow run may become before the thread goes on in another one. Workflow-side."""

from __future__ import annotations

from typing import Final

from temporalio import workflow

from harness_temporal.temporal.continuation import HistoryBudget

RESTING_BYTES: Final = 256 * 1024
"""How large the history of a thread may be that waits. As long as the thread is in a worker's cache, Temporal's SDK has
all of its history in memory, and some more."""
_TURNS: Final = 4
"""A workflow run takes at least as many bytes as so many turns like its first, which is sent all that was before it."""
RESTING_PATCH: Final = 'harness_temporal.threads.resting'
"""It is in histories for ever."""


class Leg:
    """What the thread has had of its present workflow run."""

    def __init__(self, budget: HistoryBudget) -> None:
        self._budget = budget
        self._first: int | None = None
        """Bytes of the history when the first agent run was over."""

    def note_run(self) -> None:
        """Note that an agent run is over."""
        self._first = self._first or workflow.info().get_current_history_size()

    def is_over(self) -> bool:
        """Whether the history has had its time. One in which no agent ran would be handed on for ever."""
        if self._first is None:
            return workflow.info().is_continue_as_new_suggested()
        return self._budget.is_spent() or self._is_too_large(self._first)

    def _is_too_large(self, first: int) -> bool:
        size = workflow.info().get_current_history_size()
        # Asked in this order, so that only a history that ends here has the patch's marker.
        return size >= max(RESTING_BYTES, _TURNS * first) and workflow.patched(RESTING_PATCH)
