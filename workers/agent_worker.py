"""Runs agents' workflows and activities until SIGTERM."""

from __future__ import annotations

import logging

from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal.temporal import HarnessPlugin, serve
from workers.settings import WorkerSettings
from workflows.agent_run import AgentRunWorkflow
from workflows.maintenance import StoreMaintenanceWorkflow, schedule_maintenance

logger = logging.getLogger(__name__)


async def run_worker(settings: WorkerSettings) -> None:
    """Connect, run, and on SIGTERM finish what runs."""
    agents = settings.load_agents()
    client = await Client.connect(
        settings.address, namespace=settings.namespace, plugins=[HarnessPlugin(agents=agents)]
    )
    worker = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[AgentRunWorkflow, StoreMaintenanceWorkflow],
        build_id=settings.build_id,
        graceful_shutdown_timeout=settings.graceful_shutdown,
    )
    if settings.maintenance is not None:
        schedule_id = await schedule_maintenance(
            client, settings.maintenance, task_queue=settings.task_queue, every=settings.maintenance_interval
        )
        logger.info('stores are maintained by the schedule %s', schedule_id)
    names = ', '.join(str(agent.name) for agent in agents)
    await serve(worker, on_started=lambda: logger.info('worker of %s on task queue %s', names, settings.task_queue))
    logger.info('worker stopped')
