"""`runs list` and `runs tree`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.text import Text
from rich.tree import Tree

from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output, table
from harness_temporal.errors import ConfigurationError
from harness_temporal.records import utc_now
from harness_temporal.step_persistence.inspection import RunStatus, RunSummary, list_summaries, summarize_run
from harness_temporal.step_persistence.tree import RunTree, tree_of

_AGO = re.compile(r'(\d{1,6})([mhd])')
_UNITS = {'m': 'minutes', 'h': 'hours', 'd': 'days'}


@dataclass(frozen=True)
class Filters:
    """Which runs are wanted."""

    conversation_id: str | None
    parent_run_id: str | None
    agent: str | None
    status: RunStatus | None
    since: str | None
    limit: int


async def list_runs(store: str | None, filters: Filters) -> Output:
    """List the newest runs that match."""
    since = _moment(filters.since) if filters.since is not None else None
    async with opened_store(store) as opened:
        found = await list_summaries(
            opened,
            parent_run_id=filters.parent_run_id,
            conversation_id=filters.conversation_id,
            agent_name=filters.agent,
            status=filters.status,
            since=since,
            limit=filters.limit,
        )
    columns = ('run', 'agent', 'status', 'steps', 'unresolved', 'started', 'conversation')
    rows = [
        (
            item.record.run_id,
            item.record.agent_name,
            item.status,
            item.steps,
            item.unresolved or None,
            item.record.started_at,
            item.record.conversation_id,
        )
        for item in found
    ]
    shown = table(columns, rows) if rows else 'No run matches.'
    return Output({'runs': [summary_data(item) for item in found]}, shown)


async def show_tree(store: str | None, run_id: str) -> Output:
    """Show a run with the runs that its tools started."""
    async with opened_store(store) as opened:
        tree = await tree_of(opened, await required_run(opened, run_id))
        summaries = {run.run_id: await summarize_run(opened, run) for _, run in tree.walk()}
    shown = Tree(_label(summaries[run_id]))
    _grow(shown, tree, summaries)
    return Output({'tree': _tree_data(tree, summaries)}, shown)


def summary_data(summary: RunSummary) -> dict[str, Any]:
    """Return a run of a list as JSON."""
    fields = {name: value for name, value in asdict(summary).items() if name != 'record'}
    record = {name: value for name, value in asdict(summary.record).items() if name != 'registration_id'}
    return {**record, **fields}


def _moment(text: str) -> datetime:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return utc_now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f'--since is {text!r}: write how long ago (`90m`, `2h`, `7d`), or a date or time such as 2026-03-01T12:00.'
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _tree_data(tree: RunTree, summaries: Mapping[str, RunSummary]) -> dict[str, Any]:
    children = [_tree_data(child, summaries) for child in tree.children]
    return {**summary_data(summaries[tree.run.run_id]), 'children': children}


def _grow(shown: Tree, tree: RunTree, summaries: Mapping[str, RunSummary]) -> None:
    for child in tree.children:
        _grow(shown.add(_label(summaries[child.run.run_id])), child, summaries)


def _label(summary: RunSummary) -> Text:
    unresolved = f', {summary.unresolved} unresolved' if summary.unresolved else ''
    agent = f'{summary.record.agent_name}, ' if summary.record.agent_name else ''
    return Text(f'{summary.record.run_id} ({agent}{summary.status}, {summary.steps} steps{unresolved})')
