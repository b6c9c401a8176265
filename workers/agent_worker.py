"""Runs agents' workflows and activities until SIGTERM."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.worker import build_worker, stores_of
from harness_temporal.observability import HarnessMetrics
from harness_temporal.temporal import HarnessPlugin, serve
from workers.connection import telemetry_runtime
from workers.drain import AFTER_GRACE_SECONDS, DrainLimit
from workers.http import Answer, Route, serving_http
from workers.readiness import Readiness
from workers.settings import Settings
from workers.tracing import tracing
from workflows.agent_run import AgentRunWorkflow
from workflows.maintenance import StoreMaintenanceWorkflow, schedule_maintenance
from workflows.thread import ThreadWorkflow

logger = logging.getLogger(__name__)

WORKFLOWS: Final = (AgentRunWorkflow, StoreMaintenanceWorkflow, ThreadWorkflow)
"""What the worker runs."""


async def run_worker(settings: Settings) -> None:
    """Connect, run, and on SIGTERM finish what runs.

    Raises:
        ConfigurationError: A setting does not fit what is there; the message says which.
    """
    wanted = settings.worker
    agents, payloads, conversations = wanted.load_agents(), wanted.load_payloads(), wanted.load_conversations()
    metrics = HarnessMetrics() if wanted.http_address is not None else None
    async with AsyncExitStack() as stack:
        interceptors = stack.enter_context(tracing(wanted.tracing))
        stores, media_stores = await stack.enter_async_context(stores_of(agents, payloads, conversations))
        client = await connect(
            settings.temporal,
            plugins=[
                HarnessPlugin(agents=agents, payloads=payloads, observer=metrics, conversations=conversations),
            ],
            interceptors=interceptors,
            runtime=telemetry_runtime(wanted.sdk_metrics_address),
        )
        await check_namespace(client)
        worker = build_worker(client, wanted, workflows=WORKFLOWS)
        if wanted.maintenance_input is not None:
            schedule_id = await schedule_maintenance(
                client,
                wanted.maintenance_input,
                task_queue=wanted.task_queue,
                every=timedelta(hours=wanted.maintenance_hours),
            )
            logger.info('stores are maintained by the schedule %s', schedule_id)
        readiness = Readiness(client, wanted.task_queue, stores, media_stores, conversations)
        if wanted.http_address is not None and metrics is not None:
            url = await stack.enter_async_context(serving_http(wanted.http_address, _routes(readiness, metrics)))
            logger.info('health and metrics are on %s', url)
        limit = DrainLimit(wanted.graceful_shutdown_seconds + AFTER_GRACE_SECONDS)
        stack.callback(limit.cancel)

        def started() -> None:
            names = ', '.join(str(agent.name) for agent in agents)
            logger.info('worker of %s on task queue %s', names, wanted.task_queue)

        def stopping() -> None:
            readiness.stop()
            limit.start()
            logger.info('worker stops; what runs has %.0f seconds', wanted.graceful_shutdown_seconds)

        await serve(worker, on_started=started, on_stopping=stopping)
        logger.info('worker stopped')


def _routes(readiness: Readiness, metrics: HarnessMetrics) -> dict[str, Route]:
    async def alive() -> Answer:
        return Answer(b'{"alive": true}')

    async def scraped() -> Answer:
        return Answer(metrics.exposition(), content_type=metrics.CONTENT_TYPE)

    return {'/livez': alive, '/readyz': readiness.answer, '/metrics': scraped}
