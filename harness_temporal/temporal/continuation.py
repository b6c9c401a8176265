"""Go on with an agent's run in another workflow run, before the history of this one is full. Workflow-side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from temporalio import workflow

from harness_temporal.errors import HistoryMissingError
from harness_temporal.history import snapshot_state
from harness_temporal.state.progress import RunProgress
from harness_temporal.state.running import Run
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.durability import (
    DEFAULT_HEARTBEAT_TIMEOUT,
    DEFAULT_RETRY_POLICY,
    DEFAULT_START_TO_CLOSE_TIMEOUT,
)
from harness_temporal.temporal.payloads.errors import PayloadTooLargeError
from harness_temporal.temporal.snapshots import SAVE_SNAPSHOT_ACTIVITY, SaveSnapshot

_ROOM: Final = ' ' * 128 * 1024
"""For the rest of a model request: tools, settings, context."""


@dataclass(frozen=True, kw_only=True)
class HistoryBudget:
    """When a run goes on in another workflow run, if Temporal does not suggest it before."""

    events: int | None = None
    bytes: int | None = None
    walked_messages: int = 100_000
    """What a replay may cost: the messages of the history at each step, added up. Pydantic AI goes through all of them
    about ten times a step, so this many take some seconds, and Temporal gives a workflow task ten."""

    def is_spent(self, walked: int = 0) -> bool:
        """Whether this workflow run has reached the budget, or Temporal suggests to continue as new."""
        info = workflow.info()
        return (
            info.is_continue_as_new_suggested()
            or walked >= self.walked_messages
            or (self.events is not None and info.get_current_history_length() >= self.events)
            or (self.bytes is not None and info.get_current_history_size() >= self.bytes)
        )


class Pausing:
    """Whether a run stops before its next step, to go on in another workflow run."""

    def __init__(self, budget: HistoryBudget) -> None:
        self._budget = budget
        self._too_large = False

    def __call__(self, walked: int, messages: Sequence[ModelMessage]) -> bool:
        """Return whether the budget is spent and another workflow run could be given the history."""
        if self._too_large or not self._budget.is_spent(walked):
            return False
        try:
            _check_that_it_crosses(messages)
        except PayloadTooLargeError as error:
            self._too_large = True
            workflow.logger.warning(
                'The run stays in this workflow run, although its history is long: another one would be given %s bytes '
                'at once, and the limit is %s. `HarnessPlugin(payloads=PayloadStorage(...))` raises it.',
                f'{error.size:,}',
                f'{error.limit:,}',
            )
        return not self._too_large


def _check_that_it_crosses(messages: Sequence[ModelMessage]) -> None:
    # Another workflow run loads them as JSON in JSON, and sends all of them with its first model request.
    text = ModelMessagesTypeAdapter.dump_json(list(messages), warnings=False).decode()
    workflow.payload_converter().to_payloads([text, _ROOM])


@dataclass(frozen=True, kw_only=True)
class ContinuedAgentRun:
    """What a run that goes on has behind it. It stays the same run: its steps, keys and usage are counted on."""

    progress: RunProgress
    behind: dict[str, dict[str, Any]]
    """`ContinuedRun` by the id of the `StepPersistence` that counted it."""
    conversation_id: str
    run_id: str
    """The id the run is persisted under."""


async def continued(agent: str, run: Run) -> tuple[ContinuedAgentRun, CarriedState]:
    """Return what a run that has paused goes on from. A large history is saved, and crosses by reference.

    Raises:
        HistoryMissingError: The store took no snapshot of the whole history (in an `ActivityError`).
    """
    assert run.paused is not None
    persistences = {
        capability_id: capability
        for capability_id, capability in run.capabilities.items()
        if isinstance(capability, StepPersistence)
    }
    first_id, first = next(iter(persistences.items()))
    facts = first.behind().run
    messages = run.paused.messages
    carried = CarriedState.of(run.export(), stored=SnapshotReference(run_id=facts['run_id']))
    if carried.history is not None:
        if snapshot_state(messages) == 'complete':
            await _save(agent, first_id, first, messages)
        else:
            # What a reference finds is the newest complete snapshot.
            carried = CarriedState(document=run.export())
    going_on = ContinuedAgentRun(
        progress=run.paused.progress,
        behind={capability_id: item.behind().dump() for capability_id, item in persistences.items()},
        conversation_id=facts['conversation_id'],
        run_id=facts['run_id'],
    )
    return going_on, carried


async def _save(
    agent: str, capability_id: str, persistence: StepPersistence[Any], messages: Sequence[ModelMessage]
) -> None:
    for whole in (False, True):
        saved = await workflow.execute_activity(
            SAVE_SNAPSHOT_ACTIVITY,
            SaveSnapshot(
                agent=agent,
                capability_id=capability_id,
                run=persistence.behind().run,
                snapshot=persistence.unsaved(messages, whole=whole).dump(),
            ),
            result_type=bool,
            start_to_close_timeout=DEFAULT_START_TO_CLOSE_TIMEOUT,
            heartbeat_timeout=DEFAULT_HEARTBEAT_TIMEOUT,
            retry_policy=DEFAULT_RETRY_POLICY,
            summary='save the history, to go on in another workflow run',
        )
        if saved:
            persistence.saved(messages)
            return
    raise HistoryMissingError('store', 'it took no snapshot of the whole history.')
