"""`harness-temporal import`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import aclosing

from rich.console import Console
from rich.markup import escape

from harness_temporal.cli.executing import INTERRUPTED
from harness_temporal.cli.output import print_json, show_error
from harness_temporal.cli.progress import progress_bars
from harness_temporal.errors import HarnessError
from harness_temporal.hosting.store_settings import StoreSettings
from harness_temporal.importers import ImportReport, import_runs, open_source
from harness_temporal.importers.opening import check_apart
from harness_temporal.stores.opening import open_store
from harness_temporal.text import as_storable


def run(source: str, target: str, *, as_json: bool, dry_run: bool) -> int:
    """Import and return the process's exit status: 0 only if every run was imported, or could be."""
    try:
        check_apart(source, target)
        with progress_bars() as on_progress:

            def on_run(done: int, total: int) -> None:
                on_progress('runs', done, total)

            report = asyncio.run(_import(source, target, dry_run=dry_run, on_run=on_run))
    except KeyboardInterrupt:
        print('Interrupted. Import again to go on.', file=sys.stderr)
        return INTERRUPTED
    except HarnessError as error:
        show_error(str(error), as_json=as_json)
        return 1
    if as_json:
        print_json(_as_json(report, dry_run=dry_run))
    else:
        _show(report, dry_run=dry_run)
    return 1 if report.failures else 0


async def _import(source: str, target: str, *, dry_run: bool, on_run: Callable[[int, int], None]) -> ImportReport:
    keys = StoreSettings.load().load_key_ring()
    async with aclosing(open_source(source)) as reader, aclosing(open_store(target, keys=keys)) as store:
        return await import_runs(reader, store, dry_run=dry_run, on_run=on_run)


def _as_json(report: ImportReport, *, dry_run: bool) -> dict[str, object]:
    return {
        'ok': not report.failures,
        'dry_run': dry_run,
        'runs': report.runs,
        'events': report.events,
        'snapshots': report.snapshots,
        'tool_effects': report.tool_effects,
        'failures': [{'run_id': failure.run_id, 'error': str(failure)} for failure in report.failures],
    }


def _show(report: ImportReport, *, dry_run: bool) -> None:
    console = Console(highlight=False)
    done = 'can be imported' if dry_run else 'imported'
    console.print(
        f'{report.runs} runs {done}, with {report.events} events, {report.snapshots} snapshots and '
        f'{report.tool_effects} tool effects.',
        soft_wrap=True,
    )
    for failure in report.failures:
        console.print(f'[red]{escape(as_storable(str(failure)))}[/]', soft_wrap=True)
    if report.failures:
        console.print(f'{len(report.failures)} runs {"cannot be" if dry_run else "were not"} imported.', soft_wrap=True)
