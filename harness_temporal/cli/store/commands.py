"""The commands of `harness-temporal store`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Json, Store

app = typer.Typer(no_args_is_help=True, help='Look after a store.')


@app.command()
def migrate(store: Store = None, as_json: Json = False) -> None:
    """Make the store, or bring it to the schema of this release. Doing it again changes nothing."""
    from harness_temporal.cli.store.migrating import migrate_store

    execute(lambda: migrate_store(store), as_json=as_json)


@app.command()
def check(store: Store = None, as_json: Json = False) -> None:
    """Load every snapshot, and verify every message and blob. Status 1 means that something is damaged."""
    from harness_temporal.cli.store.checking import check_opened

    execute(lambda: check_opened(store), as_json=as_json)


@app.command()
def gc(
    store: Store = None,
    expire_after_days: Annotated[
        float | None, typer.Option('--expire-after-days', min=0, help='First delete runs that were idle so long.')
    ] = None,
    expire_conversations_after_days: Annotated[
        float | None,
        typer.Option(
            '--expire-conversations-after-days',
            min=0,
            help='And conversations that were idle so long, with their runs; HARNESS_CONVERSATIONS names their store.',
        ),
    ] = None,
    include_unresolved: Annotated[
        bool, typer.Option('--include-unresolved', help='Also those with a tool call whose outcome is unknown.')
    ] = False,
    grace_hours: Annotated[
        float, typer.Option('--grace-hours', help='How long what nothing refers to is spared; at least 2.')
    ] = 24,
    as_json: Json = False,
) -> None:
    """Delete messages and blobs that nothing refers to. A media store that other stores share is theirs too."""
    from harness_temporal.cli.store.collecting import Wanted, collect_garbage

    wanted = Wanted(expire_after_days, expire_conversations_after_days, include_unresolved, grace_hours)
    execute(lambda: collect_garbage(store, wanted), as_json=as_json)
