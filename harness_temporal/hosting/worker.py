"""A worker as its settings describe it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import PollerBehaviorAutoscaling, Worker, WorkerDeploymentConfig

from harness_temporal.hosting.settings import WorkerSettings

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
