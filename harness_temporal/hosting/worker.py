"""A worker as its settings describe it, and the stores of what it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pydantic_ai.agent import AbstractAgent
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import PollerBehaviorAutoscaling, Worker, WorkerDeploymentConfig

from harness_temporal.conversations import BaseConversationStore
from harness_temporal.hosting.settings import WorkerSettings
from harness_temporal.media import MediaStore
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.stores import StepStore
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.payloads import PayloadStorage

_INITIAL_POLLERS = 5
_VERSIONING = {'pinned': VersioningBehavior.PINNED, 'auto-upgrade': VersioningBehavior.AUTO_UPGRADE}


def build_worker(client: Client, settings: WorkerSettings, *, workflows: Sequence[type]) -> Worker:
    """Return the worker that the settings describe."""
    pollers = PollerBehaviorAutoscaling(
        minimum=1, maximum=settings.max_pollers, initial=min(_INITIAL_POLLERS, settings.max_pollers)
    )
    deployment = None
    if settings.deployment_name is not None:
        deployment = WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(settings.deployment_name, settings.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=_VERSIONING[settings.versioning],
        )
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=workflows,
        # The SDK takes one or the other. Without any it hashes every module at start-up.
        build_id=settings.build_id if deployment is None else None,
        deployment_config=deployment,
        max_concurrent_activities=settings.max_concurrent_activities,
        max_concurrent_workflow_tasks=settings.max_concurrent_workflow_tasks,
        max_cached_workflows=settings.max_cached_workflows,
        workflow_task_poller_behavior=pollers,
        activity_task_poller_behavior=pollers,
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_seconds),
    )


@asynccontextmanager
async def stores_of(
    agents: Sequence[AbstractAgent[Any, Any]],
    payloads: PayloadStorage | None,
    conversations: BaseConversationStore | None = None,
) -> AsyncGenerator[tuple[Sequence[StepStore], Sequence[MediaStore]]]:
    """Yield what the agents are kept in, and the media of all that is given. Close all of it at the end."""
    registry = AgentRegistry()
    for agent in agents:
        registry.add(agent)
    stores = registry.stores()
    media: list[MediaStore | None] = [getattr(store, 'media_store', None) for store in stores]
    media.append(payloads.media_store if payloads is not None else None)
    media.append(conversations.media_store if conversations is not None else None)
    media_stores = list({id(store): store for store in media if store is not None}.values())
    try:
        yield stores, media_stores
    finally:
        for store in (*stores, *((conversations,) if conversations is not None else ())):
            await store.aclose()
        for store in media_stores:
            if isinstance(store, BaseMediaStore):
                await store.aclose()
