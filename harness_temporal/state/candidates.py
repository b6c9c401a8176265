"""What is safe to keep of a history that was interrupted (state-and-resume seed, "Safe Failure Candidates"). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
)

from harness_temporal.state.frontier import balanced, close_unanswered


def safe_history(
    messages: Sequence[ModelMessage], *, finished: Collection[int] | None, leave_open: bool, now: datetime
) -> list[ModelMessage]:
    """Return the history that a run leaves behind when it is cut off.

    Args:
        messages: The run's history, ending in whatever it was doing.
        finished: The parts of the last streamed response that had come to their end; `None` if there was none.
        leave_open: Keep unanswered calls open, because accepted answers to them are still to be applied.
        now: The time of the unknown results that close other unanswered calls.
    """
    kept = list(messages)
    if finished is not None and kept and isinstance(last := kept[-1], ModelResponse) and last.state == 'interrupted':
        parts = _whole_parts(last.parts, finished)
        kept[-1:] = [replace(last, parts=parts)] if parts else []
    if not leave_open:
        return close_unanswered(kept, now)
    if kept and isinstance(last := kept[-1], ModelRequest) and last.state == 'interrupted' and not last.parts:
        # Pydantic AI's mark that the calls before it are given up; these are not.
        kept.pop()
    return kept


def _whole_parts(parts: Sequence[ModelResponsePart], finished: Collection[int]) -> list[ModelResponsePart]:
    """Keep visible text to the last word, and everything else only if it had come to its end."""
    return balanced([part for index, part in enumerate(parts) if _is_whole(part, ended=index in finished)])


def _is_whole(part: ModelResponsePart, *, ended: bool) -> bool:
    if isinstance(part, TextPart):
        return bool(part.content)
    if isinstance(part, ThinkingPart):
        return ended and bool(part.content or part.signature)
    return ended
