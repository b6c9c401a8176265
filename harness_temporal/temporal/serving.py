"""Run a worker until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from temporalio.worker import Worker


async def serve(
    worker: Worker,
    *,
    on_started: Callable[[], None] | None = None,
    on_stopping: Callable[[], None] | None = None,
) -> None:
    """Run the worker until SIGTERM or SIGINT, then let what runs finish.

    The worker's `graceful_shutdown_timeout` bounds the wait. What is cut off after it is taken up by another worker.
    `on_stopping` is called when the signal has come, before the worker stops to ask for work.
    """
    with stop_signals() as stop:
        async with worker:
            if on_started is not None:
                on_started()
            # A fatal error of the worker cancels this wait and is raised.
            await stop.wait()
            if on_stopping is not None:
                on_stopping()


@contextmanager
def stop_signals() -> Generator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set, instead of what they do outside."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
