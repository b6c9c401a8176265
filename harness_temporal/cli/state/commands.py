"""The commands of `harness-temporal state`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Address, Agent, Json, Namespace, RunId, Store

app = typer.Typer(no_args_is_help=True, help='Carry threads in files.')


@app.command('export')
def export(
    run: RunId,
    file: Annotated[str | None, typer.Option('--output', '-o', help='A file; by default standard output.')] = None,
    from_workflow: Annotated[
        bool,
        typer.Option(
            '--from-workflow',
            help='Take the result of its workflow, which also has what capabilities keep.',
        ),
    ] = False,
    thread_id: Annotated[
        str | None, typer.Option('--thread-id', help='The id of the thread; by default a new one, or the result its.')
    ] = None,
    store: Store = None,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Write where a run stood as the state of a thread.

    The store has the messages. What capabilities keep is in the result of the run's workflow alone.
    """
    from harness_temporal.cli.state.exporting import Source, export_run

    source = Source(run, store, thread_id, from_workflow, address, namespace)
    execute(lambda: export_run(source, file=file), as_json=as_json)


@app.command('import')
def import_(
    file: Annotated[str, typer.Argument(metavar='FILE', help='The state of a thread; `-` is standard input.')],
    agent: Agent = None,
    run: Annotated[str | None, typer.Option('--run', help='The id to keep it under; by default a new one.')] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Keep a thread's messages in the store as a run, to resume or fork it.

    What capabilities keep stays in the file: pass it with `harness-temporal resume RUN --state FILE`.
    """
    from harness_temporal.cli.state.importing import import_file

    execute(lambda: import_file(store, file, agent=agent, run_id=run), as_json=as_json)
