"""Show threads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness_temporal.cli.connecting import Place, connected
from harness_temporal.cli.output import Output, table
from harness_temporal.cli.threads.talking import existing_thread
from harness_temporal.cli.threads.views import shown_reply
from harness_temporal.temporal.threads import THREAD_WORKFLOW
from harness_temporal.temporal.threads.client import thread_workflow_id

_PREFIX = thread_workflow_id('')


async def show_thread(place: Place, thread_id: str) -> Output:
    """Show where a thread is."""
    thread = await existing_thread(place, thread_id)
    status = await thread.status()
    steps = await thread.steps()
    parts: list[RenderableType] = [
        Text(f'{status.name or thread_id}: {status.state}, {status.queued} messages wait'),
        *(Text(f'step {step.number}: {step.text or ""} {", ".join(step.tools)}'.rstrip()) for step in steps),
    ]
    if status.turn is not None:
        parts.append(shown_reply(thread_id, status.turn))
    data = {'thread_id': thread_id, **asdict(status), 'steps': [asdict(step) for step in steps]}
    return Output(data, Group(*parts))


async def list_threads(place: Place, limit: int, *, everything: bool) -> Output:
    """List the newest threads."""
    target = await connected(place)
    query = f"WorkflowType = '{THREAD_WORKFLOW}'" + ('' if everything else " AND ExecutionStatus = 'Running'")
    found: list[dict[str, Any]] = []
    async for workflow in target.client.list_workflows(query, limit=limit):
        found.append(
            {
                'thread_id': workflow.id.removeprefix(_PREFIX),
                'status': workflow.status.name.lower() if workflow.status is not None else None,
                'started_at': workflow.start_time,
            }
        )
    shown = table(('thread', 'status', 'started'), [tuple(item.values()) for item in found])
    return Output({'threads': found}, shown if found else 'There is no thread.')
