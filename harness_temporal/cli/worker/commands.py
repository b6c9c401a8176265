"""The command `harness-temporal worker`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Address, Json, Namespace, TaskQueue

Agents = Annotated[
    list[str] | None,
    typer.Argument(
        metavar='[AGENT]...',
        help='As module:attribute, or a module for all that it has; else HARNESS_AGENTS, or `agents` in [worker].',
        show_default=False,
    ),
]
Workflows = Annotated[
    list[str] | None,
    typer.Option('--workflow', metavar='M:CLASS', help='A further workflow, as module:class; again for more.'),
]


def worker(
    agents: Agents = None,
    workflows: Workflows = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    as_json: Json = False,
) -> None:
    """Run agents until Ctrl-C or SIGTERM, and let what runs finish.

    It reads the settings of `python -m workers`, which is the worker to deploy: that one has health checks, metrics,
    traces and maintenance as well.
    """
    from harness_temporal.cli.worker.running import run_worker

    execute(
        lambda: run_worker(
            agents or (), workflows or (), address=address, namespace=namespace, task_queue=task_queue, as_json=as_json
        ),
        as_json=as_json,
    )
