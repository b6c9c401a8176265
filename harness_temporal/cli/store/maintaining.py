"""`store migrate` and `store gc`."""

from __future__ import annotations

from datetime import timedelta

from harness_temporal.cli.opening import opened_store
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting
from harness_temporal.errors import ConfigurationError
from harness_temporal.stores.maintenance import StoreMaintenance


async def migrate_store(store: str | None) -> Output:
    """Open the store, which makes it what this release needs."""
    async with opened_store(store, make=True) as opened:
        with waiting('the schema'):
            runs = await opened.list_runs(limit=1)
        kind = type(opened).__name__
    holds = 'It has runs.' if runs else 'It has no runs yet.'
    return Output({'store': kind, 'has_runs': bool(runs)}, f'The {kind} is as this release needs it. {holds}')


async def collect_garbage(
    store: str | None, *, expire_after_days: float | None, include_unresolved: bool, grace_hours: float
) -> Output:
    """Delete what is old, if that is wanted, and what nothing refers to."""
    if include_unresolved and expire_after_days is None:
        raise ConfigurationError('`--include-unresolved` is for `--expire-after-days`.')
    async with opened_store(store) as opened:
        maintenance = StoreMaintenance(opened, grace=timedelta(hours=grace_hours))
        expired: list[str] = []
        if expire_after_days is not None:
            with waiting('old runs'):
                expired = await maintenance.expire(
                    idle_for=timedelta(days=expire_after_days), include_unresolved=include_unresolved
                )
        with waiting('messages and blobs'):
            collected = await maintenance.collect()
    data = {
        'runs': expired,
        'messages': collected.messages,
        'blobs': collected.blobs,
        'leftovers': collected.leftovers,
    }
    return Output(
        data,
        f'Deleted: {len(expired)} runs, {collected.messages} messages, {collected.blobs} blobs, '
        f'{collected.leftovers} leftovers.',
    )
