"""Load where a run stood when it stopped, however it stopped.

A snapshot is saved when a tool cycle has settled. A run that was cut off between a model's response and the results of
its tools is ahead of its newest snapshot: the response is in the journal, and the ledger knows of the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from harness_temporal.errors import FrontierLostError, SnapshotNotFoundError
from harness_temporal.history import decode_message
from harness_temporal.records import StepEvent, ToolEffectRecord
from harness_temporal.step_persistence.operations import RESPONSE_METADATA_KEY
from harness_temporal.stores.protocol import StepStore


@dataclass(frozen=True)
class RunFrontier:
    """A run's history up to its last response, and what is recorded of that response's calls."""

    messages: list[ModelMessage]
    outcomes: Mapping[str, bytes]
    """What the effect ledger holds of the response's calls (`ToolEffectRecord.value`), by `tool_call_id`; for
    `AgentExecutable.run(recorded_outcomes=...)`. A call whose outcome is not known is not in it."""
    conversation_id: str | None


async def load_frontier(store: StepStore, *, run_id: str) -> RunFrontier:
    """Load where a run stood: its newest snapshot of either state, and a recorded response that came after it.

    Raises:
        SnapshotNotFoundError: The run has no snapshot, and called no tool. One is saved after the first settled tool
            cycle; with `StepPersistence(capture_frontier=True)` before the first model request.
        FrontierLostError: Tools were called for a response that the store does not hold, so going on from the newest
            snapshot, or from before the run, could do their effects again.
    """
    snapshot = await store.latest_snapshot(run_id=run_id, include_interrupted=True)
    effects = await store.list_tool_effects(run_id=run_id)
    if snapshot is None:
        if effects:
            raise FrontierLostError(run_id, tuple(effect.tool_name for effect in effects))
        raise SnapshotNotFoundError(run_id, include_interrupted=True)
    events = await store.list_events(run_id=run_id)
    messages, step = snapshot.messages, snapshot.step_index
    told = next((event for event in reversed(events) if RESPONSE_METADATA_KEY in event.metadata), None)
    if told is not None and told.step_index >= step:
        step = told.step_index
        recorded = await store.get_model_response(run_id=run_id, key=told.metadata[RESPONSE_METADATA_KEY])
        if recorded is not None:
            messages = _with_response(messages, decode_message(recorded.body))
    calls = _calls_of_last_response(messages)
    later = [
        effect
        for effect in effects
        if effect.step_index > step or (effect.step_index == step and effect.tool_call_id not in calls)
    ]
    if later:
        raise FrontierLostError(run_id, tuple(effect.tool_name for effect in later))
    return RunFrontier(
        messages=messages,
        outcomes=_outcomes(effect for effect in effects if effect.step_index == step),
        conversation_id=snapshot.conversation_id,
    )


def is_end(event: StepEvent) -> bool:
    """Whether the event ends its run."""
    return event.kind in ('run_completed', 'run_failed')


async def has_ended(store: StepStore, *, run_id: str) -> bool:
    """Whether the run's end is recorded. If not, it may still be running."""
    return any(is_end(event) for event in await store.list_events(run_id=run_id))


def _last_response(messages: Sequence[ModelMessage]) -> ModelResponse | None:
    return next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)


def _with_response(messages: list[ModelMessage], response: ModelMessage) -> list[ModelMessage]:
    """Add a response, unless the history has it: as its last, or before the results of its calls."""
    assert isinstance(response, ModelResponse)
    last = _last_response(messages)
    # The run stamped the one in the history with its ids.
    if last is not None and (last.timestamp, last.parts) == (response.timestamp, response.parts):
        return messages
    return [*messages, response]


def _calls_of_last_response(messages: Sequence[ModelMessage]) -> set[str]:
    last = _last_response(messages)
    return {part.tool_call_id for part in last.parts if isinstance(part, ToolCallPart)} if last is not None else set()


def _outcomes(effects: Iterable[ToolEffectRecord]) -> dict[str, bytes]:
    """Return the values by call. Of a call that was executed twice in its step (approved), the last one counts."""
    last = {effect.tool_call_id: effect.value for effect in effects}
    return {call_id: value for call_id, value in last.items() if value is not None}
