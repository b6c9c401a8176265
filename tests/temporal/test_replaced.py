"""Which attempts ask whether they still have their place. `tests/faults/test_fencing.py` has whole workers."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from harness_temporal import AgentRunInput
from harness_temporal.errors import AttemptReplacedError
from harness_temporal.records import utc_now
from harness_temporal.temporal.replaced import Lease
from workflows.agent_run import AgentRunWorkflow

pytestmark = pytest.mark.temporal
LIMIT = timedelta(seconds=30)


def an_attempt(client: Client | None, *, number: int = 1, age: timedelta = timedelta(0)) -> ActivityEnvironment:
    environment = ActivityEnvironment(client=client)
    environment.info = replace(environment.info, attempt=number, heartbeat_timeout=LIMIT, started_time=utc_now() - age)
    return environment


async def check() -> None:
    await Lease().check()


@pytest.fixture
async def without_activities(client: Client, task_queue: str) -> tuple[str, str | None]:
    """A workflow that waits for a worker."""
    handle = await client.start_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent='nobody', prompt='go'),
        id=f'run-{uuid.uuid4()}',
        task_queue=task_queue,
    )
    return handle.id, handle.result_run_id


@pytest.mark.parametrize(
    ('number', 'age'),
    [(1, 2 * LIMIT), (2, timedelta(0)), (2, -2 * LIMIT)],
    ids=['handed out long ago', 'a later one', 'a later one by a clock that is slow'],
)
async def test_attempt_that_can_have_lost_its_place_asks(
    client: Client, without_activities: tuple[str, str | None], number: int, age: timedelta
) -> None:
    environment = an_attempt(client, number=number, age=age)
    workflow_id, run_id = without_activities
    environment.info = replace(environment.info, workflow_id=workflow_id, workflow_run_id=run_id)
    with pytest.raises(AttemptReplacedError):
        await environment.run(check)


async def test_first_attempt_that_just_began_does_not_ask() -> None:
    # There is no client that it could ask.
    await an_attempt(None).run(check)
