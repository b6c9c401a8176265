"""Where a thread is, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import to_json
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness_temporal.cli.output import Output, table
from harness_temporal.temporal.threads import PendingCall, Reply


def reply_output(thread_id: str, reply: Reply) -> Output:
    """Return how a turn went. One that failed is no success."""
    return Output({'thread_id': thread_id, **asdict(reply)}, shown_reply(thread_id, reply), ok=reply.status != 'failed')


def shown_reply(thread_id: str, reply: Reply) -> RenderableType:
    """Return how a turn went, for people."""
    match reply.status:
        case 'answered':
            return Text(str(reply.output))
        case 'failed':
            return Text(f'Turn {reply.turn} failed: {reply.error_type}: {reply.error}')
        case 'waiting_for_approval':
            hint = f'Decide with `harness-temporal approve {thread_id} CALL`, or `deny`.'
            return Group(Text(f'Turn {reply.turn} waits:'), pending_table(reply.pending), Text(hint))
        case _:
            return Text(f'Turn {reply.turn} is {reply.status}.')


def pending_table(pending: Sequence[PendingCall]) -> Table:
    """Make a table of calls that wait."""
    rows: list[tuple[Any, ...]] = [
        (
            call.tool_call_id,
            call.tool,
            'answered' if call.answered else call.kind,
            to_json(call.arguments).decode(),
            call.since,
            call.deadline,
        )
        for call in pending
    ]
    return table(('call', 'tool', 'waits for', 'arguments', 'since', 'until'), rows)
