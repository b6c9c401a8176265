"""Answer the calls that a thread waits for."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.tools import DeferredToolResults, ToolDenied

from harness_temporal.cli.connecting import Place
from harness_temporal.cli.inputs import json_option
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting
from harness_temporal.cli.threads.talking import existing_thread
from harness_temporal.cli.threads.views import reply_output
from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal.threads import HarnessThread


async def approve_calls(place: Place, thread_id: str, calls: Sequence[str], *, every: bool, wait: bool) -> Output:
    """Approve calls."""
    return await _decided(place, thread_id, calls, True, every=every, wait=wait)


async def deny_calls(
    place: Place, thread_id: str, calls: Sequence[str], *, every: bool, reason: str | None, wait: bool
) -> Output:
    """Deny calls."""
    denied = ToolDenied(reason) if reason is not None else ToolDenied()
    return await _decided(place, thread_id, calls, denied, every=every, wait=wait)


async def answer_call(place: Place, thread_id: str, call: str, result: str, *, wait: bool) -> Output:
    """Give the result of an external call."""
    value = json_option('The result', result)
    thread = await existing_thread(place, thread_id)
    return await _resolved(thread, DeferredToolResults(calls={call: value}), wait=wait)


async def _decided(
    place: Place, thread_id: str, calls: Sequence[str], decision: bool | ToolDenied, *, every: bool, wait: bool
) -> Output:
    thread = await existing_thread(place, thread_id)
    approvals = {call: decision for call in await _chosen(thread, calls, every=every)}
    return await _resolved(thread, DeferredToolResults(approvals={**approvals}), wait=wait)


async def _resolved(thread: HarnessThread, results: DeferredToolResults, *, wait: bool) -> Output:
    with waiting(f'thread {thread.thread_id}'):
        reply = await thread.resolve(results, wait='answered' if wait else 'accepted')
    return reply_output(thread.thread_id, reply)


async def _chosen(thread: HarnessThread, calls: Sequence[str], *, every: bool) -> Sequence[str]:
    if bool(calls) == every:
        raise ConfigurationError(
            f'Name the calls, or give `--all`. `harness-temporal threads show {thread.thread_id}` shows those that '
            'wait.'
        )
    if not every:
        return calls
    waiting_for = await thread.approvals()
    return [call.tool_call_id for call in waiting_for if call.kind == 'approval' and not call.answered]
