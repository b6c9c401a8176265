"""`harness-temporal demo`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from rich.console import Console

from harness_temporal.cli.demo.director import Show, stage
from harness_temporal.cli.demo.report import DemoReport
from harness_temporal.cli.demo.scene import Scene
from harness_temporal.cli.demo.view import live_view, show_report
from harness_temporal.cli.executing import INTERRUPTED
from harness_temporal.cli.output import show_error
from harness_temporal.errors import HarnessError


def run(*, as_json: bool, keep: bool) -> int:
    """Run the demo and return the process's exit status: 0 only if everything was as it should be."""
    console = Console()
    viewing: AbstractContextManager[Show] = nullcontext(_show_nothing) if as_json else live_view(console)

    def present(report: DemoReport) -> None:
        if as_json:
            print(report.to_json(), flush=True)
            if keep:
                print('The server is still running; stop it with Ctrl-C.', file=sys.stderr)
        else:
            show_report(console, report, server_stays=keep)

    try:
        return 0 if asyncio.run(_play(viewing, present, keep=keep)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except HarnessError as error:
        show_error(str(error), as_json=as_json)
        return 1


async def _play(viewing: AbstractContextManager[Show], present: Callable[[DemoReport], None], *, keep: bool) -> bool:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    # As Ctrl-C does, so that what the demo started goes with it.
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    with ExitStack() as screen:
        async with stage(screen.enter_context(viewing)) as director:
            report = await director.perform()
            # The live view redraws itself over what is printed while it is on.
            screen.close()
            present(report)
            if keep:
                await _stopped(loop)
    return report.ok


async def _stopped(loop: asyncio.AbstractEventLoop) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _show_nothing(scene: Scene) -> None:
    """Take the place of the live view."""
