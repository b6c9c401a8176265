"""Who asks Temporal for the work of a task queue."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from harness_temporal.errors import ConfigurationError


async def pollers(client: Client, task_queue: str, *, timeout: timedelta | None = None) -> list[str]:
    """Return the identities of the workers that asked for work within the last minutes."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    described = await client.workflow_service.describe_task_queue(request, timeout=timeout)
    return sorted({poller.identity for poller in described.pollers})


async def check_polled(client: Client, task_queue: str) -> list[str]:
    """Make sure that somebody works for a task queue, and return who.

    Raises:
        ConfigurationError: Nobody does, and what is started there would wait.
    """
    found = await pollers(client, task_queue)
    if not found:
        raise ConfigurationError(
            f'No worker asks for the work of task queue {task_queue!r} in namespace {client.namespace!r}. Start one '
            '(`harness-temporal worker`, or `harness-temporal dev`), or name the task queue of yours (`--task-queue`, '
            'HARNESS_TASK_QUEUE).'
        )
    return found
