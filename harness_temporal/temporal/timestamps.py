"""The times of the messages that workflow code makes. Workflow-side.

Pydantic AI asks the machine's clock, which tells a replay another time. Its messages would then be others than those
that the store has and that earlier requests were sent with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic_ai.messages import ModelMessage, ModelRequest


def stamp_request(messages: Sequence[ModelMessage], *, run_id: str | None, now: datetime) -> None:
    """Give the request that is about to be sent, the last message, the time that a replay gives it too.

    The parts of one that this run was given, and goes on from, keep theirs.
    """
    request = messages[-1] if messages else None
    if not isinstance(request, ModelRequest):
        return
    request.timestamp = now
    if request.run_id == run_id:
        for part in request.parts:
            if hasattr(part, 'timestamp'):
                part.timestamp = now  # pyright: ignore[reportAttributeAccessIssue]
