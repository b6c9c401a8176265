"""`store check`."""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from harness_temporal.cli.opening import opened_store
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import progress_bars
from harness_temporal.stores.checking import StoreCheck, check_store


async def check_opened(store: str | None) -> Output:
    """Read everything in a store."""
    async with opened_store(store) as opened:
        with progress_bars() as on_progress:
            check = await check_store(opened, on_checked=lambda what, done: on_progress(what, done, None))
    return Output(asdict(check), _shown(check), ok=not check.problems)


def _shown(check: StoreCheck) -> Text:
    shown = Text(
        f'{check.runs} runs, {check.events} events, {check.snapshots} snapshots, {check.tool_effects} tool effects '
        f'({check.unresolved} unresolved), {check.blobs} blobs with {check.bytes:,} bytes.\n'
    )
    if not check.problems:
        return shown.append('All of it can be read, and is what it was.')
    for problem in check.problems:
        shown.append(f'{problem}\n', style='red')
    return shown.append(
        f'{len(check.problems)} problems. Bring what is missing back from a backup; the runs that are named cannot be '
        'gone on with.'
    )
