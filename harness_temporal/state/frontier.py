"""The frontier of a history: the calls of its last response that nothing has answered. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
    ToolReturnPart,
)

from harness_temporal.history import pair_calls


@dataclass(frozen=True)
class Frontier:
    """The last response of a history, and what of it is open."""

    index: int
    """Where the response is. What follows it are requests with answers to some of its calls."""
    response: ModelResponse
    pending: tuple[ToolCallPart, ...]
    """The unanswered calls, in the response's order, each id once."""
    answered: frozenset[str]
    repeated: tuple[str, ...]
    """Ids that more than one call of the response has: an answer could be for either."""


def find_frontier(messages: Sequence[ModelMessage]) -> Frontier | None:
    """Find the last response. A call in an earlier one is not recovered: the model has gone on without it."""
    for index in range(len(messages) - 1, -1, -1):
        response = messages[index]
        if isinstance(response, ModelResponse):
            calls = {part.tool_call_id: part for part in response.parts if isinstance(part, ToolCallPart)}
            unanswered = frozenset(pair_calls(messages[index:]).unanswered)
            counts = Counter(part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart))
            return Frontier(
                index=index,
                response=response,
                pending=tuple(call for call_id, call in calls.items() if call_id in unanswered),
                answered=frozenset(calls) - unanswered,
                repeated=tuple(call_id for call_id, count in counts.items() if count > 1),
            )
    return None


def unknown_result(call: ToolCallPart, now: datetime) -> ToolReturnPart:
    """Answer a call whose outcome nobody recorded. Like any return it closes the call for good."""
    return ToolReturnPart(
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        content=(
            f'The run was interrupted before a result of this {call.tool_name!r} call was recorded. The call may have '
            'taken effect in full, in part or not at all. Find out what is the case now before deciding to call it '
            'again.'
        ),
        outcome='failed',
        timestamp=now,
    )


def is_provider_suspended(messages: Sequence[ModelMessage]) -> bool:
    """Whether the history ends in a response that its provider has not finished; only it can go on with that."""
    last = messages[-1] if messages else None
    return isinstance(last, ModelResponse) and last.state == 'suspended'


def with_balanced_tail(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Drop half-made provider calls from a last response that was cut off, and the response if it is then empty."""
    result = list(messages)
    frontier = find_frontier(result)
    if frontier is None or frontier.response.state != 'interrupted':
        return result
    parts = balanced(frontier.response.parts)
    if not parts:
        del result[frontier.index]
    elif len(parts) < len(frontier.response.parts):
        result[frontier.index] = replace(frontier.response, parts=parts)
    return result


def balanced(parts: Sequence[ModelResponsePart]) -> list[ModelResponsePart]:
    """Return the parts without any provider-executed one, unless each of their calls has its return."""
    calls = Counter(part.tool_call_id for part in parts if isinstance(part, NativeToolCallPart))
    returns = Counter(part.tool_call_id for part in parts if isinstance(part, NativeToolReturnPart))
    if calls == returns:
        return list(parts)
    return [part for part in parts if not isinstance(part, NativeToolCallPart | NativeToolReturnPart)]


def close_unanswered(messages: Sequence[ModelMessage], now: datetime) -> list[ModelMessage]:
    """Give every open call of the last response an unknown result, after the answers that it has."""
    result = list(messages)
    frontier = find_frontier(result)
    if frontier is None or not frontier.pending:
        return result
    unknown = [unknown_result(call, now) for call in frontier.pending]
    last = result[-1]
    if isinstance(last, ModelRequest):
        results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
        rest = [part for part in last.parts if not isinstance(part, ToolReturnPart)]
        result[-1] = replace(last, parts=[*results, *unknown, *rest])
    else:
        result.append(ModelRequest(parts=unknown, timestamp=now, state='interrupted'))
    return result
