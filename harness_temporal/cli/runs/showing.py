"""`runs show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness_temporal.cli.effects.views import effect_data, effects_table
from harness_temporal.cli.open_calls import listed, open_calls
from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output, cell, table
from harness_temporal.cli.runs.listing import summary_data
from harness_temporal.records import ContinuableSnapshot, StepEvent
from harness_temporal.step_persistence.inspection import RunSummary, summarize_run
from harness_temporal.step_persistence.recovery import inspect_recovery


async def show_run(store: str | None, run_id: str) -> Output:
    """Show all that is known of a run but its messages, which `state export` gives."""
    async with opened_store(store) as opened:
        summary = await summarize_run(opened, await required_run(opened, run_id))
        events = await opened.list_events(run_id=run_id)
        effects = await opened.list_tool_effects(run_id=run_id)
        left = await inspect_recovery(store=opened, run_id=run_id)
    data = {
        **summary_data(summary),
        'events': [event_data(event) for event in events],
        'tool_effects': [effect_data(effect) for effect in effects],
        'latest_snapshot': _snapshot_data(left.latest),
        'settled_snapshot': _snapshot_data(left.settled),
    }
    parts: list[RenderableType] = [_heading(summary), Text(), _events_table(events)]
    if effects:
        parts += [Text('\ntool calls', style='bold'), effects_table(effects)]
    parts += [Text(), Text(_advice(summary, left.latest))]
    return Output({'run': data}, Group(*parts))


def event_data(event: StepEvent) -> dict[str, Any]:
    """Return an event as JSON."""
    return {name: value for name, value in asdict(event).items() if name != 'idempotency_key'}


def event_row(event: StepEvent) -> tuple[object, ...]:
    """Return an event as it stands in a table."""
    what = event.kind.replace('_', ' ')
    return event.timestamp, event.step_index, what, event.tool_name, event.tool_call_id, event.error


def _events_table(events: Sequence[StepEvent]) -> RenderableType:
    return table(('time', 'step', 'event', 'tool', 'call', 'error'), map(event_row, events))


def _heading(summary: RunSummary) -> RenderableType:
    record = summary.record
    rows = {
        'run': record.run_id,
        'agent': record.agent_name,
        'status': summary.status,
        'error': summary.error,
        'started': record.started_at,
        'conversation': record.conversation_id,
        'parent': record.parent_run_id,
        **record.metadata,
    }
    return Text('\n'.join(f'{name}: {cell(value)}' for name, value in rows.items() if value is not None))


def _snapshot_data(snapshot: ContinuableSnapshot | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    return {
        'step_index': snapshot.step_index,
        'state': snapshot.state,
        'messages': len(snapshot.messages),
        'timestamp': snapshot.timestamp,
    }


def _advice(summary: RunSummary, latest: ContinuableSnapshot | None) -> str:
    run_id = summary.record.run_id
    if latest is None:
        return 'It has no snapshot, so nothing can go on from it.'
    at = f'Its newest snapshot is of step {latest.step_index}, {latest.state}.'
    if summary.status == 'completed' and latest.state == 'interrupted':
        waits_for = listed(open_calls(latest.messages))
        return (
            f'{at} It suspended itself, and waits for answers to {waits_for}: `harness-temporal resume {run_id} '
            '--answers FILE`.'
        )
    if summary.unresolved:
        return f'{at} The outcome of {summary.unresolved} tool calls is unknown: `harness-temporal effects list`.'
    if summary.status == 'completed':
        return f'{at} Branch off it with `harness-temporal fork {run_id}`.'
    return f'{at} Go on with `harness-temporal resume {run_id}`, or branch off with `fork`.'
