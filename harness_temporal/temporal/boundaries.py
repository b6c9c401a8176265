"""Boundary operations inside the activities that run anyway. Worker-side.

A `ToolAttempt` keeps the effect ledger around one attempt at a tool call, a `ModelAttempt` the journal around one
attempt at a model request. Both are told what to write by the frame that the workflow put into the run context.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_core import PydanticSerializationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from harness_temporal.errors import ToolEffectConflictError, UnknownToolOutcomeError
from harness_temporal.history import decode_message, encode_message, snapshot_state
from harness_temporal.observability.observer import observer
from harness_temporal.records import ModelResponseRecord, ToolEffectRecord
from harness_temporal.step_persistence import effects, operations
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.step_persistence.context import tool_call_scope
from harness_temporal.step_persistence.facts import ModelRequestFacts, RunFacts, ToolCallFacts
from harness_temporal.step_persistence.outcomes import (
    Ended,
    ended_with_error,
    ended_with_result,
    error_text,
    failed_instead,
    load_result,
    result,
)
from harness_temporal.step_persistence.patience import write_patiently
from harness_temporal.temporal import siblings
from harness_temporal.temporal.replaced import Lease, workflow_runs

RETRYABLE_TOOL_ATTEMPTS = 3
"""How often a tool declared retryable may raise before its call fails, where no retry policy was given."""
MODEL_REQUEST_ATTEMPTS = 10
"""How often a model request may raise before it fails, where no retry policy was given."""
_OUTCOME = 'harness_outcome'

Execute = Callable[[], Awaitable[Any]]


@dataclass
class ToolAttempt:
    """One attempt at one tool call, under the ledger of one `StepPersistence`."""

    persistence: StepPersistence[Any]
    run: RunFacts
    call: ToolCallFacts
    retry_policy_given: bool

    @classmethod
    def of(
        cls,
        persistence: StepPersistence[Any],
        frame: Mapping[str, Any],
        arguments: Mapping[str, object],
        *,
        retry_policy_given: bool,
    ) -> ToolAttempt:
        """Read the call's frame."""
        run = RunFacts.load(frame['run'])
        call = ToolCallFacts.load(frame['call'])
        return cls(persistence, run, call if call.call_key else call.keyed(run, arguments), retry_policy_given)

    async def execute(self, execute: Execute) -> Any:
        """Run the tool, unless the ledger says that it must not; write down how it ended.

        Returns:
            The result as the activity returns it: the tool's, a recorded one, or one that says that the outcome is
            unknown.
        """
        with siblings.under_way(self.run.run_id):
            given, held = await self._attempt(execute)
        if held is not None:
            # The effect has happened: being cancelled now does not make its outcome unknown.
            await asyncio.shield(self._end(*held))
        return given

    async def _end(self, record: ToolEffectRecord, ended: Ended) -> None:
        await siblings.end_together(self.run.run_id)
        await self._finish(record, ended)

    async def _attempt(self, execute: Execute) -> tuple[Any, tuple[ToolEffectRecord, Ended] | None]:
        """Claim the call and run the tool. Returns the result and, if the tool ran, what is to be written of it."""
        store = self.persistence.store
        await self._write_outcome_of_earlier_attempt()
        claim = await effects.claim(
            store, self.run, self.call, recovery=self.persistence.tool_recovery, holder=uuid.uuid4().hex
        )
        if isinstance(claim, effects.Reuse):
            return load_result(claim.value), None
        if isinstance(claim, effects.Unknown):
            return await self._unknown(claim.record), None
        with tool_call_scope(self.run.run_id, claim.record):
            try:
                given = await execute()
            except asyncio.CancelledError as error:
                # A worker's shutdown, and an attempt that was replaced, leave an unknown outcome.
                if await asyncio.shield(self._was_given_up()):
                    await asyncio.shield(self._finish(claim.record, ended_with_error(error)))
                raise
            except Exception as error:
                await self._finish(claim.record, ended_with_error(error))
                if self._may_raise_again(claim.record, error):
                    raise
                raise final(error) from error
        try:
            ended = ended_with_result(given)
        except PydanticSerializationError as error:
            # The effect happened; only its value cannot travel. Temporal would retry the activity for ever.
            given = failed_instead(
                given, f'{self.call.tool_name!r} completed, but its result has no JSON form: {error}'
            )
            ended = ended_with_result(given)
        return given, (claim.record, ended)

    async def _was_given_up(self) -> bool:
        """Whether nobody waits for the cancelled call any more, and nobody was told that its outcome is unknown."""
        details = activity.cancellation_details()
        if details is None or not details.not_found:
            return details is not None and details.cancel_requested
        # The server knows this attempt no more: the workflow has ended, or another attempt has its place.
        if await workflow_runs():
            return False
        events = await self.persistence.store.list_events(run_id=self.run.run_id)
        return not any(effects.is_told_unknown(event, self.call) for event in events)

    def _may_raise_again(self, record: ToolEffectRecord, error: Exception) -> bool:
        if isinstance(error, ApplicationError) and error.non_retryable:
            return True
        return self.retry_policy_given or (self.call.retryable and record.attempts < RETRYABLE_TOOL_ATTEMPTS)

    async def _unknown(self, record: ToolEffectRecord) -> Any:
        await effects.report_unknown(self.persistence.store, self.run, self.call, record)
        text = effects.unknown_text(record)
        match self.persistence.on_unknown:
            case 'fail':
                raise UnknownToolOutcomeError(record)
            case 'suspend':
                return result('call_deferred', metadata={effects.UNKNOWN_OUTCOME_METADATA_KEY: text})
            case 'report':
                return result('tool_failed', message=text)

    async def _finish(self, record: ToolEffectRecord, ended: Ended) -> None:
        async def write() -> None:
            await effects.finish(self.persistence.store, self.run, self.call, record, ended)

        outcome = {
            'call_key': record.ledger_key,
            'holder': record.holder,
            'attempts': record.attempts,
            'started_at': record.started_at.isoformat(),
            'outcome': ended.outcome,
            'value': ended.value.decode() if ended.value is not None else None,
            'error': ended.error,
        }
        await write_after_effect(write, {_OUTCOME: outcome})

    async def _write_outcome_of_earlier_attempt(self) -> None:
        """Write what an earlier attempt knew but could not: its store was away, and it left it in its heartbeat."""
        for details in activity.info().heartbeat_details:
            known = (
                cast(dict[str, Any], cast(dict[str, Any], details).get(_OUTCOME) or {})
                if isinstance(details, dict)
                else {}
            )
            if known.get('call_key') != self.call.call_key:
                continue
            # This attempt's own heartbeats replace the details, so they are said again.
            activity.heartbeat(details)
            record = self.call.effect(
                self.run, holder=known['holder'], attempts=known['attempts'], started_at=known['started_at']
            )
            value = known['value']
            ended = Ended(known['outcome'], value.encode() if value is not None else None, known['error'])
            try:
                await effects.finish(self.persistence.store, self.run, self.call, record, ended)
            except ToolEffectConflictError:
                return


@dataclass
class ModelAttempt:
    """One attempt at one model request, under the journal of one `StepPersistence`."""

    persistence: StepPersistence[Any]
    run: RunFacts
    request: ModelRequestFacts
    retry_policy_given: bool

    @classmethod
    def of(
        cls, persistence: StepPersistence[Any], frame: Mapping[str, Any], *, retry_policy_given: bool
    ) -> ModelAttempt:
        """Read the request's frame."""
        request = ModelRequestFacts.load(frame['request'])
        return cls(persistence, RunFacts.load(frame['run']), request, retry_policy_given)

    async def execute(self, messages: Sequence[ModelMessage], execute: Execute) -> Any:
        """Write what is due, ask the model, write what it said. A retry finds what was said and does not ask again.

        Raises:
            AttemptReplacedError: The attempt began so late, or was silent for so long, that another one has its place.
        """
        store, run, request = self.persistence.store, self.run, self.request
        info = activity.info()
        key = f'{info.workflow_run_id}:{info.activity_id}'
        if info.attempt > 1:
            recorded = await store.get_model_response(run_id=run.run_id, key=key)
            if recorded is not None:
                observer().duplicate_suppressed(agent=run.agent_name or '', what='model')
                return decode_message(recorded.body)
        lease = Lease()
        # A replaced attempt that begins late need not ask the model at all.
        await lease.check()
        history = await operations.start_model_request(store, run, request, messages, attempt=info.attempt)
        try:
            response: ModelResponse = await execute()
        except Exception as error:
            await operations.fail_model_request(store, run, request, attempt=info.attempt, error=error_text(error))
            if self.retry_policy_given or info.attempt < MODEL_REQUEST_ATTEMPTS:
                raise
            raise final(error) from error
        await lease.check()
        body = encode_message(response).body
        unsettled = request.frontier_save is not None and snapshot_state([response]) == 'interrupted'

        async def write() -> None:
            await operations.finish_model_request(
                store,
                run,
                request,
                attempt=info.attempt,
                response=ModelResponseRecord(run_id=run.run_id, key=key, body=body),
                frontier=(history, response) if unsettled else None,
            )

        await write_after_effect(write, {})
        return response


async def write_after_effect(write: Callable[[], Awaitable[None]], details: Mapping[str, Any]) -> None:
    """Write what happened. While the store is away, try again for a while, then fail: `details` are in the heartbeat.

    Raises:
        StoreUnavailableError: The store stayed away; the next attempt of the activity gets the heartbeat's details.
    """
    # The activity's own heartbeats ended with its body.
    await write_patiently(write, waiting=lambda: activity.heartbeat(dict(details)))


def final(error: Exception) -> ApplicationError:
    """Return the error as one that Temporal does not retry."""
    if isinstance(error, ApplicationError):
        return ApplicationError(error.message, *error.details, type=error.type, non_retryable=True)
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
