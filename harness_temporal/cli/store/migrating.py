"""`store migrate`."""

from __future__ import annotations

from harness_temporal.cli.opening import opened_store
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting


async def migrate_store(store: str | None) -> Output:
    """Open the store, which makes it what this release needs."""
    async with opened_store(store, make=True) as opened:
        with waiting('the schema'):
            runs = await opened.list_runs(limit=1)
        kind = type(opened).__name__
    holds = 'It has runs.' if runs else 'It has no runs yet.'
    return Output({'store': kind, 'has_runs': bool(runs)}, f'The {kind} is as this release needs it. {holds}')
