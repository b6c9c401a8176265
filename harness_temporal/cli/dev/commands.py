"""The command `harness-temporal dev`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Json, TaskQueue
from harness_temporal.cli.worker.commands import Agents, Workflows


def dev(
    agents: Agents = None,
    workflows: Workflows = None,
    port: Annotated[int, typer.Option('--port', help='Where Temporal answers.', min=1, max=65535)] = 7233,
    ui_port: Annotated[int, typer.Option('--ui-port', help='Where its web UI is.', min=1, max=65535)] = 8233,
    task_queue: TaskQueue = None,
    reload: Annotated[bool, typer.Option(help='Restart the worker when a Python file of this folder changes.')] = True,
    as_json: Json = False,
) -> None:
    """Run a Temporal server with its UI, a store and a worker of your agents, until Ctrl-C.

    Without agents, given or in the settings, it runs a sample that needs no key. Everything is kept in the folder
    .harness of the current folder, and is there again the next time.
    """
    from harness_temporal.cli.dev.developing import Plan, develop

    plan = Plan(tuple(agents or ()), tuple(workflows or ()), port, ui_port, task_queue, reload)
    execute(lambda: develop(plan, as_json=as_json), as_json=as_json)
