"""The commands of `harness-temporal`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """Durable Pydantic AI agents on Temporal."""


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option('--json', help='Print one JSON object as the last line.')] = False,
    keep: Annotated[bool, typer.Option('--keep', help='Leave the Temporal server running until Ctrl-C.')] = False,
) -> None:
    """Run an agent, kill its worker twice with SIGKILL, and see it finish.

    It brings its own Temporal server and needs no network, no key and no Docker.
    """
    # Temporal's client takes a while to import, which `--help` should not.
    from harness_temporal.cli.demo.command import run

    status = run(as_json=as_json, keep=keep)
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's native threads sometimes abort an interpreter that is torn down under them (sdk-python issue 300), and
    # a good run would end with the status of a crash. Everything that the demo started has ended by here.
    os._exit(status)
