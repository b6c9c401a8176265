"""The commands of `harness-temporal`."""

from __future__ import annotations

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

    raise typer.Exit(run(as_json=as_json, keep=keep))
