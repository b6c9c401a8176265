"""The commands of `harness-temporal runs`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Agent, Conversation, Json, Limit, RunId, Store

app = typer.Typer(no_args_is_help=True, help='Look at runs in the store.')

Parent = Annotated[str | None, typer.Option('--parent', help='Only runs that a tool of this run started.')]
Status = Annotated[
    Literal['running', 'completed', 'failed', 'unknown'] | None,
    typer.Option('--status', help='`running`: no end is recorded. `unknown`: no event is.'),
]
Since = Annotated[
    str | None, typer.Option('--since', help='Only runs that began since: `90m`, `2h`, `7d`, or a date or time (UTC).')
]


@app.command('list')
def list_(
    store: Store = None,
    conversation: Conversation = None,
    parent: Parent = None,
    agent: Agent = None,
    status: Status = None,
    since: Since = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List runs."""
    from harness_temporal.cli.runs.listing import Filters, list_runs

    filters = Filters(conversation, parent, agent, status, since, limit)
    execute(lambda: list_runs(store, filters), as_json=as_json)


@app.command()
def show(run: RunId, store: Store = None, as_json: Json = False) -> None:
    """Show one run: its events, tool calls, and how it can be gone on with."""
    from harness_temporal.cli.runs.showing import show_run

    execute(lambda: show_run(store, run), as_json=as_json)


@app.command()
def tree(run: RunId, store: Store = None, as_json: Json = False) -> None:
    """Show a run with the runs that its tools started."""
    from harness_temporal.cli.runs.listing import show_tree

    execute(lambda: show_tree(store, run), as_json=as_json)


@app.command()
def tail(
    run: RunId,
    store: Store = None,
    follow: Annotated[bool, typer.Option(help='Wait for further events until the run ends.')] = True,
    as_json: Json = False,
) -> None:
    """Print a run's events as they come; with --json, one object per line."""
    from harness_temporal.cli.runs.tailing import tail_run

    execute(lambda: tail_run(store, run, follow=follow, as_json=as_json), as_json=as_json)


@app.command()
def diff(
    left: RunId,
    right: Annotated[str, typer.Argument(metavar='OTHER', help='The id of another.')],
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Compare what two runs said and what their tools did."""
    from harness_temporal.cli.runs.diffing import diff_runs

    execute(lambda: diff_runs(store, left, right), as_json=as_json)
