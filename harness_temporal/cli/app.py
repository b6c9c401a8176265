"""The commands of `harness-temporal`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.dev.commands import dev
from harness_temporal.cli.doctor.commands import doctor
from harness_temporal.cli.effects import commands as effects
from harness_temporal.cli.options import Json
from harness_temporal.cli.running.commands import fork, resume, run
from harness_temporal.cli.runs import commands as runs
from harness_temporal.cli.state import commands as state
from harness_temporal.cli.store import commands as store
from harness_temporal.cli.threads import commands as threads
from harness_temporal.cli.threads.commands import approve, deny
from harness_temporal.cli.worker.commands import worker

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """Durable Pydantic AI agents on Temporal."""


for command in (dev, worker, run, resume, fork, approve, deny, doctor):
    app.command()(command)
app.add_typer(threads.app, name='threads')
app.add_typer(runs.app, name='runs')
app.add_typer(effects.app, name='effects')
app.add_typer(state.app, name='state')
app.add_typer(store.app, name='store')


@app.command()
def demo(
    as_json: Json = False,
    keep: Annotated[bool, typer.Option('--keep', help='Leave the Temporal server running until Ctrl-C.')] = False,
) -> None:
    """Run an agent, kill its worker twice with SIGKILL, and see it finish.

    It brings its own Temporal server and needs no network, no key and no Docker.
    """
    # Temporal's client takes a while to import, which `--help` should not.
    from harness_temporal.cli.demo.command import run

    raise typer.Exit(run(as_json=as_json, keep=keep))


@store.app.command('import')
@app.command('import')
def import_(
    source: Annotated[str, typer.Argument(help='The store of pydantic-ai-harness to read: a URL or a path.')],
    target: Annotated[str, typer.Argument(help='The store of this package to write to: a URL or a path.')],
    as_json: Json = False,
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
    as_json: Json = False,
) -> None:
    """Let the Temporal UI and CLI show payloads that are stored or encrypted.

    Serve it behind TLS: the token and the payloads are in its requests.
    """
    # Temporal's client takes a while to import, which `--help` should not.
    from harness_temporal.cli.codec_server import serve_storage

    raise typer.Exit(
        serve_storage(payloads, token, namespaces or ['default'], origins or [], host=host, port=port, as_json=as_json)
    )
