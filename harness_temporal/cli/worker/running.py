"""Run a worker until it is told to stop."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from harness_temporal.cli.output import print_json
from harness_temporal.cli.worker.workflows import load_workflows
from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.logs import configure_logging
from harness_temporal.hosting.settings import TemporalSettings, WorkerSettings
from harness_temporal.hosting.worker import build_worker, stores_of
from harness_temporal.temporal import HarnessPlugin, serve

_OF_THE_DEPLOYED_WORKER: Final = ('http_address', 'sdk_metrics_address', 'tracing', 'maintenance')
_logger = logging.getLogger(__name__)


async def run_worker(
    names: Sequence[str],
    workflows: Sequence[str],
    *,
    address: str | None,
    namespace: str | None,
    task_queue: str | None,
    as_json: bool,
) -> None:
    """Run the agents that are named, or that the settings name, with further workflows.

    Raises:
        ConfigurationError: A setting does not fit what is there, or asks for what only the deployed worker does.
    """
    temporal = TemporalSettings.load(address=address, namespace=namespace)
    wanted = WorkerSettings.load(agents=tuple(names) or None, task_queue=task_queue)
    for field in _OF_THE_DEPLOYED_WORKER:
        if getattr(wanted, field):
            raise ConfigurationError(
                f'{WorkerSettings.variable(field)} is for the worker that is deployed (`python -m workers`), which '
                'this one is not. Unset it.'
            )
    configure_logging(wanted.log_level, wanted.log_format)
    agents, payloads = wanted.load_agents(), wanted.load_payloads()
    all_workflows = load_workflows(workflows)
    async with stores_of(agents, payloads):
        plugin = HarnessPlugin(agents=agents, payloads=payloads)
        client = await connect(temporal, plugins=[plugin])
        await check_namespace(client)
        worker = build_worker(client, wanted, workflows=all_workflows)

        def started() -> None:
            agent_names = [str(agent.name) for agent in agents]
            if as_json:
                print_json({'ok': True, 'agents': agent_names, 'task_queue': wanted.task_queue})
            _logger.info('worker of %s on task queue %s', ', '.join(agent_names), wanted.task_queue)

        await serve(worker, on_started=started)
