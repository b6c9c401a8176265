"""What a batch of answers has to fulfil before anything runs (state-and-resume seed, "Resume validates that"). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import DeferredToolRequests, ToolApproved, ToolDefinition, ToolDenied
from pydantic_core import from_json

from harness_temporal.errors import DeferredResumeError, NotStorableError
from harness_temporal.history import encode_message
from harness_temporal.state.deferred import (
    DeferredToolResume,
    call_ids,
    check_results_cover,
    frontier_of,
    resume_error,
)
from harness_temporal.state.frontier import Frontier
from harness_temporal.state.json_values import JsonLimits, canonical_json

MAX_REQUESTS = 128
METADATA_LIMITS = JsonLimits(size=64 * 1024)


def check_resume(resume: DeferredToolResume, message_history: Sequence[ModelMessage]) -> DeferredToolResume | None:
    """Check a batch against the history, before anything runs.

    Returns:
        The batch; with `recovery` only what is left of it, or `None` if nothing is.

    Raises:
        DeferredResumeError: It does not fit. The codes are checked in the order of the functions below.
    """
    checked: DeferredToolResume | None = resume
    if resume.recovery:
        checked = resume.remaining(message_history)
        if checked is None:
            return None
    check_batch(checked)
    frontier = frontier_of(message_history)
    if frontier.repeated:
        raise resume_error('deferred_request_duplicate', 'Two calls of the response have one id.', frontier.repeated[0])
    for call in _all_calls(checked.requests):
        _check_pending(call, frontier)
    if not checked.recovery:
        asked = {call.tool_call_id for call in _all_calls(checked.requests)}
        for call in frontier.pending:
            if call.tool_call_id not in asked:
                raise resume_error(
                    'deferred_results_incomplete',
                    f'Call {call.tool_call_id!r} of {call.tool_name!r} is open too, and the batch does not have it.',
                    call.tool_call_id,
                )
    return checked


def check_batch(resume: DeferredToolResume) -> None:
    """Check a batch by itself: its requests, and that each has a result that could be kept.

    Raises:
        DeferredResumeError: It is no whole batch.
    """
    _check_requests(resume.requests)
    _check_metadata(resume.requests.metadata, resume)
    check_results_cover(resume)
    _check_results(resume)
    _check_metadata(resume.results.metadata, resume)


def _all_calls(requests: DeferredToolRequests) -> list[ToolCallPart]:
    return [*requests.calls, *requests.approvals]


def _check_requests(requests: DeferredToolRequests) -> None:
    for category in (requests.calls, requests.approvals):
        ids = call_ids(category)
        for call_id in ids:
            if ids.count(call_id) > 1:
                raise resume_error('deferred_request_duplicate', f'Call {call_id!r} is asked for twice.', call_id)
    for call_id in call_ids(requests.calls):
        if call_id in call_ids(requests.approvals):
            raise resume_error(
                'deferred_request_category_overlap', f'Call {call_id!r} is both an approval and a call.', call_id
            )
    calls = _all_calls(requests)
    if not calls:
        raise resume_error('deferred_requests_empty', 'There is no request.')
    if len(calls) > MAX_REQUESTS:
        raise resume_error('deferred_requests_too_large', f'{len(calls)} requests; at most {MAX_REQUESTS} are taken.')
    for call in calls:
        if not call.tool_call_id.strip() or not call.tool_name.strip():
            raise resume_error('deferred_request_invalid', 'A request names no call or no tool.', call.tool_call_id)
        if isinstance(call.args, dict) and not _is_json(call.args):
            raise resume_error('deferred_request_invalid', 'Arguments of a request are not JSON.', call.tool_call_id)


def _check_metadata(metadata: Mapping[str, Any], resume: DeferredToolResume) -> None:
    known = call_ids(_all_calls(resume.requests))
    for call_id, value in metadata.items():
        if call_id not in known:
            raise resume_error('deferred_metadata_invalid', f'Metadata of {call_id!r}, which is no request.', call_id)
        try:
            canonical_json(value, METADATA_LIMITS)
        except ValueError as error:
            raise resume_error('deferred_metadata_invalid', f'Metadata of {call_id!r}: {error}', call_id) from error


def _check_results(resume: DeferredToolResume) -> None:
    approvals = cast(Mapping[str, Any], resume.results.approvals)
    for call_id, approval in approvals.items():
        # By exact type: 1 and 'yes' are no decision of a person.
        if type(approval) is not bool and not isinstance(approval, ToolApproved | ToolDenied):
            raise resume_error(
                'deferred_approval_invalid',
                f'The approval of {call_id!r} must be a bool, `ToolApproved` or `ToolDenied`, not {approval!r}.',
                call_id,
            )
        override = approval.override_args if isinstance(approval, ToolApproved) else None
        if override is not None and not _is_json(override):
            raise resume_error('deferred_results_invalid', f'The arguments for {call_id!r} are not JSON.', call_id)
    for call in resume.requests.calls:
        result = resume.results.calls[call.tool_call_id]
        if not isinstance(result, ModelRetry | ToolFailed) and not _is_storable(call, result):
            raise resume_error(
                'deferred_results_invalid',
                f'The result of {call.tool_call_id!r} could not be kept in the history.',
                call.tool_call_id,
            )


def _is_json(value: Any) -> bool:
    try:
        canonical_json(value)
    except ValueError:
        return False
    return True


def _is_storable(call: ToolCallPart, result: Any) -> bool:
    try:
        part = ToolReturnPart(call.tool_name, result, tool_call_id=call.tool_call_id)
        from_json(encode_message(ModelRequest(parts=[part])).body.removeprefix(b'\x01'), allow_inf_nan=False)
    except (NotStorableError, ValueError, RecursionError):
        return False
    return True


def _check_pending(call: ToolCallPart, frontier: Frontier) -> None:
    made = next(
        (
            part
            for part in frontier.response.parts
            if isinstance(part, ToolCallPart) and part.tool_call_id == call.tool_call_id
        ),
        None,
    )
    if made is None:
        raise resume_error(
            'deferred_request_missing',
            f'The last response made no call {call.tool_call_id!r}: the history is another, or went on.',
            call.tool_call_id,
        )
    if call.tool_call_id in frontier.answered:
        raise resume_error(
            'deferred_request_completed', f'Call {call.tool_call_id!r} has its result already.', call.tool_call_id
        )
    if (made.tool_name, _arguments(made)) != (call.tool_name, _arguments(call)):
        raise resume_error(
            'deferred_request_mismatch',
            f'Call {call.tool_call_id!r} is in the history with another tool or other arguments.',
            call.tool_call_id,
        )


def _arguments(call: ToolCallPart) -> Any:
    """Return the arguments such that another formatting of the same JSON is equal."""
    args = cast(Any, call.args)
    try:
        return canonical_json(from_json(args) if isinstance(args, str) else (args or {}))
    except ValueError:
        return args


def check_tools(resume: DeferredToolResume, tools: Mapping[str, ToolDefinition]) -> None:
    """Check a batch against the tools as they were just prepared, before anything runs.

    An approval needs a tool that runs here; an external result needs a tool, which may be one of ours that deferred
    itself. Only a failure reported for a tool that is gone can still be recorded.

    Raises:
        DeferredResumeError: `deferred_surface_mismatch`.
    """
    for call in resume.requests.approvals:
        tool = tools.get(call.tool_name)
        if tool is None or tool.kind not in ('function', 'unapproved'):
            raise _mismatch(call)
    for call in resume.requests.calls:
        tool = tools.get(call.tool_name)
        failed = isinstance(resume.results.calls[call.tool_call_id], ToolFailed)
        if (tool is None and not failed) or (tool is not None and tool.kind == 'output'):
            raise _mismatch(call)


def _mismatch(call: ToolCallPart) -> DeferredResumeError:
    return resume_error(
        'deferred_surface_mismatch',
        f'Tool {call.tool_name!r} is gone, or is no longer one that the answer of call {call.tool_call_id!r} fits.',
        call.tool_call_id,
    )
