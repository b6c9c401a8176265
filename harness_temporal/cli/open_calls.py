"""The calls that a suspended run waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic_ai.messages import ModelMessage, ToolCallPart

from harness_temporal.state.frontier import find_frontier


def open_calls(messages: Sequence[ModelMessage]) -> tuple[ToolCallPart, ...]:
    """Return the calls of a history's last response that nothing has answered, in its order."""
    frontier = find_frontier(messages)
    return frontier.pending if frontier is not None else ()


def listed(calls: Iterable[ToolCallPart]) -> str:
    """Return calls as a sentence names them."""
    return ', '.join(f'{call.tool_call_id} ({call.tool_name})' for call in calls)
