"""The commands of `harness-temporal effects`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Agent, Conversation, Json, RunId, Store

app = typer.Typer(no_args_is_help=True, help='Tool calls whose outcome is unknown.')


@app.command('list')
def list_(
    store: Store = None,
    run: Annotated[str | None, typer.Option('--run', help='Only calls of this run.')] = None,
    conversation: Conversation = None,
    agent: Agent = None,
    limit: Annotated[int, typer.Option('--limit', min=1, help='Look at so many runs, the newest first.')] = 1000,
    as_json: Json = False,
) -> None:
    """List the tool calls that may or may not have had their effect. A call that runs right now is one of them."""
    from harness_temporal.cli.effects.listing import list_effects

    execute(lambda: list_effects(store, run, conversation, agent, limit), as_json=as_json)


@app.command()
def resolve(
    run: RunId,
    call: Annotated[str, typer.Argument(metavar='CALL', help='The id of the call, or its key where ids repeat.')],
    completed: Annotated[
        str | None, typer.Option('--completed', help='It had its effect and gave this, as JSON.', metavar='JSON')
    ] = None,
    failed: Annotated[
        str | None, typer.Option('--failed', help='It had no effect, for this reason.', metavar='REASON')
    ] = None,
    by: Annotated[str | None, typer.Option('--by', help='Who says so; by default you.')] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Say what became of a call, after a look at the outside system. It stands: an attempt that wakes up is refused.

    Whoever goes on from the run (`harness-temporal resume`) gets it as the tool's result.
    """
    from harness_temporal.cli.effects.resolving import resolve_effect

    execute(lambda: resolve_effect(store, run, call, completed=completed, failed=failed, by=by), as_json=as_json)
