"""Runs agents' workflows and activities until SIGTERM."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from pydantic_ai.agent import AbstractAgent

from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.worker import build_worker
from harness_temporal.media import MediaStore
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.observability import HarnessMetrics
from harness_temporal.stores import StepStore
from harness_temporal.temporal import HarnessPlugin, serve
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.payloads import PayloadStorage
from workers.connection import telemetry_runtime
from workers.drain import AFTER_GRACE_SECONDS, DrainLimit
from workers.http import Answer, Route, serving_http
from workers.readiness import Readiness
from workers.settings import Settings
from workers.tracing import tracing
from workflows.agent_run import AgentRunWorkflow
from workflows.maintenance import StoreMaintenanceWorkflow, schedule_maintenance

logger = logging.getLogger(__name__)

WORKFLOWS: Final = (AgentRunWorkflow, StoreMaintenanceWorkflow)
"""What the worker runs."""


async def run_worker(settings: Settings) -> None:
    """Connect, run, and on SIGTERM finish what runs.

    Raises:
        ConfigurationError: A setting does not fit what is there; the message says which.
    """
    wanted = settings.worker
    agents, payloads = wanted.load_agents(), wanted.load_payloads()
    metrics = HarnessMetrics() if wanted.http_address is not None else None
    async with AsyncExitStack() as stack:
        interceptors = stack.enter_context(tracing(wanted.tracing))
        stores, media_stores = await stack.enter_async_context(_stores(agents, payloads))
        client = await connect(
            settings.temporal,
            plugins=[HarnessPlugin(agents=agents, payloads=payloads, observer=metrics)],
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
        readiness = Readiness(client, wanted.task_queue, stores, media_stores)
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


@asynccontextmanager
async def _stores(
    agents: Sequence[AbstractAgent[Any, Any]], payloads: PayloadStorage | None
) -> AsyncGenerator[tuple[Sequence[StepStore], Sequence[MediaStore]]]:
    """Yield what the agents and payloads are kept in, and close it at the end."""
    registry = AgentRegistry()
    for agent in agents:
        registry.add(agent)
    stores = registry.stores()
    media: list[MediaStore | None] = [getattr(store, 'media_store', None) for store in stores]
    media.append(payloads.media_store if payloads is not None else None)
    media_stores = list({id(store): store for store in media if store is not None}.values())
    try:
        yield stores, media_stores
    finally:
        for store in stores:
            await store.aclose()
        for store in media_stores:
            if isinstance(store, BaseMediaStore):
                await store.aclose()


def _routes(readiness: Readiness, metrics: HarnessMetrics) -> dict[str, Route]:
    async def alive() -> Answer:
        return Answer(b'{"alive": true}')

    async def scraped() -> Answer:
        return Answer(metrics.exposition(), content_type=metrics.CONTENT_TYPE)

    return {'/livez': alive, '/readyz': readiness.answer, '/metrics': scraped}
