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


@app.command('import')
def import_(
    source: Annotated[str, typer.Argument(help='The store of pydantic-ai-harness to read: a URL or a path.')],
    target: Annotated[str, typer.Argument(help='The store of this package to write to: a URL or a path.')],
    as_json: Annotated[bool, typer.Option('--json', help='Print one JSON object.')] = False,
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Read and check the source, and write nothing.')] = False,
) -> None:
    """Import the runs of a pydantic-ai-harness store (0.36 to 0.62).

    Stores are written as file:FOLDER, sqlite:FILE, postgresql://... or mongodb://HOST/DATABASE. The source stays as it
    is; stop what writes to it. Importing again adds only what is not there yet.
    """
    # The message types of Pydantic AI take a while to import, which `--help` should not.
    from harness_temporal.cli.importing import run

    raise typer.Exit(run(source, target, as_json=as_json, dry_run=dry_run))


@app.command('codec-server')
def codec_server(
    payloads: Annotated[str, typer.Argument(help='The PayloadStorage of your workers, as module:attribute.')],
    token: Annotated[str, typer.Option(envvar='HARNESS_CODEC_TOKEN', help='The bearer token that may read.')],
    namespaces: Annotated[list[str] | None, typer.Option('--namespace', help='Again for more.')] = None,
    origins: Annotated[list[str] | None, typer.Option('--origin', help="The Temporal UI's; again for more.")] = None,
    host: Annotated[str, typer.Option(help='The address to listen on.')] = '127.0.0.1',
    port: Annotated[int, typer.Option(help='The port to listen on.')] = 8081,
) -> None:
    """Let the Temporal UI and CLI show payloads that are stored or encrypted.

    Serve it behind TLS: the token and the payloads are in its requests.
    """
    # Temporal's client takes a while to import, which `--help` should not.
    from harness_temporal.cli.codec_server import serve_storage

    raise typer.Exit(serve_storage(payloads, token, namespaces or ['default'], origins or [], host=host, port=port))
