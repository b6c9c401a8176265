"""Field case 56: a method that a workflow must not call fails the workflow, and does not hang its task."""

from __future__ import annotations

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from tests.faults.sync_workflow import CallsRunSync

pytestmark = pytest.mark.temporal


async def test_a_synchronous_call_fails_the_workflow(client: Client, task_queue: str) -> None:
    async with Worker(client, task_queue=task_queue, workflows=[CallsRunSync], build_id='tests'):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(CallsRunSync.run, id=task_queue, task_queue=task_queue)
    assert 'run_sync' in str(failed.value.cause) or 'running event loop' in str(failed.value.cause)
