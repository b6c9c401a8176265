"""`runs tail`."""

from __future__ import annotations

import asyncio
from typing import Final

from rich.console import Console

from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import cell, print_json
from harness_temporal.cli.runs.showing import event_data, event_row
from harness_temporal.records import StepEvent
from harness_temporal.step_persistence.frontier import is_end

_PAUSE: Final = 0.3


async def tail_run(store: str | None, run_id: str, *, follow: bool, as_json: bool) -> None:
    """Print the events that are there, and with `follow` those that come, until the run ends."""
    console = Console(highlight=False)
    async with opened_store(store) as opened:
        await required_run(opened, run_id)
        seen, ended = 0, False
        while True:
            for event in await opened.list_events(run_id=run_id, after=seen):
                seen, ended = event.seq or seen, is_end(event)
                _print(console, event, as_json=as_json)
            if ended or not follow:
                return
            await asyncio.sleep(_PAUSE)


def _print(console: Console, event: StepEvent, *, as_json: bool) -> None:
    if as_json:
        print_json(event_data(event))
    else:
        line = '  '.join(cell(value) for value in event_row(event) if value is not None)
        console.print(line, soft_wrap=True, markup=False)
