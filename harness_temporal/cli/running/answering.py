"""Answers to the calls that a suspended run waits for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

from harness_temporal.cli.open_calls import listed, open_calls
from harness_temporal.errors import ConfigurationError
from harness_temporal.records import RunRecord
from harness_temporal.state.deferred import DeferredToolResume, call_ids
from harness_temporal.state.deferred_checks import check_resume
from harness_temporal.step_persistence.frontier import load_frontier
from harness_temporal.step_persistence.inspection import summarize_run
from harness_temporal.step_persistence.outcomes import load_result
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.durability import WORKFLOW_ID_METADATA_KEY
from harness_temporal.temporal.threads.client import thread_workflow_id

_APPROVAL: Final = 'approval_required'
_RESULT: Final = 'call_deferred'
_WAITS_FOR: Final = {_APPROVAL: 'an approval', _RESULT: 'a result'}
"""What a call waits for, by the kind of its recorded outcome."""


async def answers_of(store: StepStore, run: RunRecord, results: DeferredToolResults) -> DeferredToolResume:
    """Return answers with the calls that they answer, which the store has.

    Raises:
        ConfigurationError: The run is a turn of a thread or did not suspend itself, or a call does not wait, or has no
            answer, two, or one of the other kind.
        DeferredResumeError: An answer cannot be kept.
        SnapshotNotFoundError: The store does not have the run's history.
    """
    _check_alone(run)
    frontier = await load_frontier(store, run_id=run.run_id)
    pending = open_calls(frontier.messages)
    if not pending or (await summarize_run(store, run)).status != 'completed':
        raise ConfigurationError(
            f'Run {run.run_id!r} did not suspend itself, and waits for no answers: resume it without `--answers`.'
        )
    _check_calls(run.run_id, pending, results)
    known = {call_id: str(load_result(value).kind) for call_id, value in frontier.outcomes.items()}
    # A call of unknown outcome asks for what became of it. An approval would have it made again.
    unresolved = await store.list_unresolved_tool_effects(run_id=run.run_id)
    _check_kinds({**known, **{effect.tool_call_id: _RESULT for effect in unresolved}}, results)
    resume = DeferredToolResume(_requests(pending, results), results)
    check_resume(resume, frontier.messages)
    return resume


def _check_alone(run: RunRecord) -> None:
    thread_id = run.conversation_id
    if thread_id is not None and run.metadata.get(WORKFLOW_ID_METADATA_KEY) == thread_workflow_id(thread_id):
        raise ConfigurationError(
            f'Run {run.run_id!r} is a turn of the thread {thread_id}, which takes the answers: `harness-temporal '
            f'approve {thread_id}`, `deny`, or `threads answer`.'
        )


def _check_calls(run_id: str, pending: Sequence[ToolCallPart], results: DeferredToolResults) -> None:
    for call_id in (*results.approvals, *results.calls):
        if call_id not in call_ids(pending):
            raise ConfigurationError(f'Run {run_id!r} waits for no answer to {call_id!r}, but for {listed(pending)}.')
        if call_id in results.approvals and call_id in results.calls:
            raise ConfigurationError(f'There are two answers to {call_id!r}.')
    for call in pending:
        if call.tool_call_id not in (*results.approvals, *results.calls):
            raise ConfigurationError(f'There is no answer to {call.tool_call_id!r} ({call.tool_name}).')


def _check_kinds(known: Mapping[str, str], results: DeferredToolResults) -> None:
    for answered, given in ((results.approvals, _APPROVAL), (results.calls, _RESULT)):
        for call_id in answered:
            # Of a tool that was never called nothing is recorded; the worker knows what it takes.
            wanted = known.get(call_id, given)
            if wanted != given and wanted in _WAITS_FOR:
                raise ConfigurationError(f'{call_id!r} waits for {_WAITS_FOR[wanted]}, not for {_WAITS_FOR[given]}.')


def _requests(pending: Sequence[ToolCallPart], results: DeferredToolResults) -> DeferredToolRequests:
    return DeferredToolRequests(
        calls=_answered(pending, results.calls), approvals=_answered(pending, results.approvals)
    )


def _answered(pending: Sequence[ToolCallPart], ids: Collection[str]) -> list[ToolCallPart]:
    return [call for call in pending if call.tool_call_id in ids]
