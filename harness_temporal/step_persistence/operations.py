"""The boundary operations: plain functions over a store.

Three hosts call them: the capability's hooks outside a durable engine, one durable operation each with dedicated
boundaries, and, on Temporal, the attempts of the model-request and tool-call activities. They are the only place that
reads the clock, so every timestamp is journaled with the operation that wrote it. Each is one `StepStore.commit`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage

from harness_temporal.errors import HistoryMissingError
from harness_temporal.history import encode_history, encode_message, encoded_state, link
from harness_temporal.identity import event_key, snapshot_key
from harness_temporal.observability.observer import observer
from harness_temporal.records import (
    ContinuableSnapshot,
    EncodedHistory,
    EncodedSnapshot,
    ModelResponseRecord,
    Record,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
    utc_now,
)
from harness_temporal.step_persistence.facts import (
    EndedToolCall,
    EventFacts,
    ModelRequestFacts,
    RunFacts,
    SnapshotFacts,
    ToolCallFacts,
)
from harness_temporal.stores.protocol import StepStore

ATTEMPT_METADATA_KEY = 'harness.attempt'
OUTCOME_METADATA_KEY = 'harness.outcome'
_logger = logging.getLogger(__name__)
RESPONSE_METADATA_KEY = 'harness.response'
"""On `model_request_completed`: the key of the response's record. A run that was cut off is continued from it."""


async def start_run(store: StepStore, run: RunFacts, *, host: Mapping[str, str]) -> None:
    """Register the run and write `run_started`. Doing it again for the same registration changes nothing.

    `host` says where the run runs; it goes into the run's metadata, and not into that of its events.

    Raises:
        DuplicateRunError: Another registration holds the run id.
    """
    record = RunRecord(
        run_id=run.run_id,
        conversation_id=run.conversation_id,
        parent_run_id=run.parent_run_id,
        agent_name=run.agent_name,
        metadata={**host, **run.metadata},
        registration_id=run.registration_id,
    )
    if run.conversation_id is not None:
        # Two workers' clocks differ; the next turn of a conversation must still list after the one before it.
        for earlier in await store.list_runs(conversation_id=run.conversation_id, limit=1):
            if earlier.run_id != run.run_id:
                record = replace(record, started_at=max(record.started_at, earlier.started_at))
    await store.commit([record, event(run, EventFacts(kind='run_started', step_index=0))])
    observer().run_started(agent=run.agent_name or '')
    _logger.info('The run started.')


async def append_event(store: StepStore, run: RunFacts, facts: EventFacts) -> None:
    """Write one event."""
    await store.commit([event(run, facts)])


async def save_snapshot(store: StepStore, run: RunFacts, facts: SnapshotFacts) -> bool:
    """Save one snapshot. Returns false, having written nothing, if the history that it extends is not in the store."""
    return await _commit(store, [snapshot(run, facts)])


async def end_run(
    store: StepStore,
    run: RunFacts,
    *,
    ended: EventFacts,
    last: SnapshotFacts | None,
    pending: Iterable[Mapping[str, Any]] = (),
) -> bool:
    """Write a run's last snapshot and its end. Returns false, having written nothing, as `save_snapshot` does."""
    records = [*ended_tool_calls(run, pending)]
    if last is not None:
        records.append(snapshot(run, last))
    written = await _commit(store, [*records, event(run, ended)])
    if written:
        observer().run_ended(agent=run.agent_name or '', completed=ended.kind == 'run_completed')
        _logger.info('The run ended: %s.', ended.kind)
    return written


async def start_model_request(
    store: StepStore, run: RunFacts, request: ModelRequestFacts, messages: Sequence[ModelMessage], *, attempt: int
) -> EncodedHistory:
    """Write what is due before a model request, and return the run's history, whose head the store then holds."""
    records = [*ended_tool_calls(run, request.pending)]
    history = EncodedHistory(None, 0, ())
    if request.save is not None or request.frontier_save is not None:
        if request.snapshot is not None:
            facts = SnapshotFacts.load(request.snapshot)
            history, state = facts.history, facts.state
        else:
            history = encode_history(messages)
            state = encoded_state(history, messages)
        if request.save is not None:
            records.append(_snapshot(run, history, save=request.save, step_index=request.step_index, state=state))
    records.append(_request_event(run, request, 'model_request_started', attempt))
    await store.commit(records)
    return history


async def finish_model_request(
    store: StepStore,
    run: RunFacts,
    request: ModelRequestFacts,
    *,
    attempt: int,
    response: ModelResponseRecord | None,
    frontier: tuple[EncodedHistory, ModelMessage] | None = None,
) -> None:
    """Record a model's response and the end of the request; with `frontier`, the history with that response too."""
    records: list[Record] = []
    if response is not None:
        records.append(response)
    if frontier is not None and request.frontier_save is not None:
        before, message = frontier
        encoded = link(before.head, before.length, [encode_message(message)])
        records.append(
            _snapshot(
                run,
                replace(encoded, base=before.base, base_length=before.base_length, links=before.links + encoded.links),
                save=request.frontier_save,
                step_index=request.step_index,
                state='interrupted',
                request_attempt=attempt,
            )
        )
    key = response.key if response is not None else None
    records.append(_request_event(run, request, 'model_request_completed', attempt, response=key))
    await store.commit(records)
    observer().step_ended(agent=run.agent_name or '')


async def fail_model_request(
    store: StepStore, run: RunFacts, request: ModelRequestFacts, *, attempt: int, error: str
) -> None:
    """Record that an attempt at a model request failed."""
    await store.commit([_request_event(run, request, 'model_request_failed', attempt, error=error)])


def event(run: RunFacts, facts: EventFacts) -> StepEvent:
    """Make the event, with a key that is the same when the operation is done again."""
    metadata = dict(run.metadata)
    attempt = max(facts.attempt, run.attempt)
    if attempt > 1:
        metadata[ATTEMPT_METADATA_KEY] = str(attempt)
    if facts.outcome is not None:
        metadata[OUTCOME_METADATA_KEY] = facts.outcome
    if facts.response is not None:
        metadata[RESPONSE_METADATA_KEY] = facts.response
    return StepEvent(
        run_id=run.run_id,
        kind=facts.kind,
        step_index=facts.step_index,
        conversation_id=run.conversation_id,
        parent_run_id=run.parent_run_id,
        agent_name=run.agent_name,
        tool_call_id=facts.tool_call_id,
        tool_name=facts.tool_name,
        error=facts.error,
        metadata=metadata,
        idempotency_key=event_key(
            facts.kind,
            step_index=facts.step_index,
            subject=facts.subject,
            attempt=facts.attempt,
            run_attempt=run.attempt,
        ),
    )


def tool_event(
    run: RunFacts, call: ToolCallFacts, *, attempt: int, outcome: str | None, error: str | None = None
) -> StepEvent:
    """Make the event of a tool call's start (`outcome` is `None`) or end."""
    kind = {None: 'tool_call_started', 'returned': 'tool_call_completed'}.get(outcome, 'tool_call_failed')
    return event(
        run,
        EventFacts(
            kind=kind,  # pyright: ignore[reportArgumentType]  # one of the three literals above
            step_index=call.step_index,
            subject=call.call_key,
            attempt=attempt,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            error=error,
            outcome=outcome if outcome != 'returned' else None,
        ),
    )


def snapshot(run: RunFacts, facts: SnapshotFacts) -> EncodedSnapshot:
    """Make the snapshot that `facts` tell of."""
    return _snapshot(run, facts.history, save=facts.save, step_index=facts.step_index, state=facts.state)


def ended_tool_calls(run: RunFacts, pending: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Make the records of tool calls that ran in workflow code: the whole call at once."""
    records: list[Record] = []
    for item in pending:
        ended = EndedToolCall.load(item)
        call = ToolCallFacts.load(ended.call)
        now = utc_now()
        records += [
            ToolEffectRecord(
                run_id=run.run_id,
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                call_key=call.call_key,
                step_index=call.step_index,
                status='completed' if ended.outcome == 'returned' else 'failed',
                started_at=now,
                ended_at=now,
                holder=run.registration_id,
                outcome=ended.outcome,
                value=ended.value.encode() if ended.value is not None else None,
                error=ended.error,
                idempotency_key=ended.idempotency_key,
                effect_summary=ended.effect_summary,
            ),
            tool_event(run, call, attempt=1, outcome=None),
            tool_event(run, call, attempt=1, outcome=ended.outcome, error=ended.error),
        ]
    return records


def _snapshot(
    run: RunFacts, history: EncodedHistory, *, save: int, step_index: int, state: Any, request_attempt: int = 1
) -> EncodedSnapshot:
    return EncodedSnapshot(
        snapshot=ContinuableSnapshot(
            run_id=run.run_id,
            step_index=step_index,
            messages=[],
            conversation_id=run.conversation_id,
            parent_run_id=run.parent_run_id,
            agent_name=run.agent_name,
            state=state,
            idempotency_key=snapshot_key(
                save=save, step_index=step_index, state=state, attempt=run.attempt, request_attempt=request_attempt
            ),
        ),
        history=history,
    )


def _request_event(
    run: RunFacts,
    request: ModelRequestFacts,
    kind: Any,
    attempt: int,
    *,
    error: str | None = None,
    response: str | None = None,
) -> StepEvent:
    return event(
        run,
        EventFacts(
            kind=kind,
            step_index=request.step_index,
            subject=request.subject,
            attempt=attempt,
            error=error,
            response=response,
        ),
    )


async def _commit(store: StepStore, records: Sequence[Record]) -> bool:
    try:
        await store.commit(records)
    except HistoryMissingError:
        return False
    return True
