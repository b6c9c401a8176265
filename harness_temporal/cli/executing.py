"""How a command's work is run, and how its end becomes an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import typer

from harness_temporal.cli.failures import explained
from harness_temporal.cli.output import Output, show, show_error

INTERRUPTED = 130


def execute(work: Callable[[], Awaitable[Output | None]], *, as_json: bool) -> None:
    """Do the work and print what it gives, if anything is left to print. A mistake is told in words.

    Raises:
        typer.Exit: With status 1 if something is wrong, with 130 after Ctrl-C.
    """

    async def awaited() -> Output | None:
        return await work()

    try:
        output = asyncio.run(awaited())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        told = explained(error)
        if told is None:
            raise
        show_error(told, as_json=as_json)
        raise typer.Exit(1) from error
    if output is not None:
        show(output, as_json=as_json)
        if not output.ok:
            raise typer.Exit(1)
