"""Stores are maintained by a workflow, on a schedule."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import Client

from harness_temporal.records import utc_now
from harness_temporal.temporal import MaintenanceInput, MaintenanceOutput
from harness_temporal.testing.samples import a_run, a_snapshot, turns
from tests.temporal.processes import Workers
from tests.temporal.runs import until
from workflows.maintenance import StoreMaintenanceWorkflow, schedule_maintenance

pytestmark = pytest.mark.temporal

DAY = timedelta(days=1)


async def test_a_schedule_deletes_what_is_old_and_keeps_what_is_young(client: Client, workers: Workers) -> None:
    store = workers.config.open_store()
    now = utc_now()
    for run_id, at in (('old', now - 10 * DAY), ('young', now - DAY)):
        await store.commit([a_run(run_id, started_at=at), a_snapshot(turns(2), run_id, timestamp=at)])
    workers.start()
    input = MaintenanceInput(idle_for=5 * DAY)
    schedule_id = await schedule_maintenance(client, input, task_queue=workers.task_queue, every=DAY)
    # Saying it again changes the schedule instead of failing.
    assert schedule_id == await schedule_maintenance(client, input, task_queue=workers.task_queue, every=2 * DAY)
    schedule = client.get_schedule_handle(schedule_id)
    [interval] = (await schedule.describe()).schedule.spec.intervals
    assert interval.every == 2 * DAY
    await schedule.trigger()

    async def is_gone() -> bool:
        return await store.get_run(run_id='old') is None

    try:
        await until(is_gone)
    finally:
        await schedule.delete()
    assert await store.get_run(run_id='young') is not None
    assert await store.latest_snapshot(run_id='young') is not None


async def test_the_workflow_says_what_it_deleted(client: Client, workers: Workers) -> None:
    store = workers.config.open_store()
    at = utc_now() - 10 * DAY
    await store.commit([a_run('old', started_at=at), a_snapshot(turns(3), 'old', timestamp=at)])
    workers.start()
    deleted = await client.execute_workflow(
        StoreMaintenanceWorkflow.run,
        MaintenanceInput(idle_for=5 * DAY),
        id=f'maintenance-{workers.task_queue}',
        task_queue=workers.task_queue,
    )
    assert deleted == MaintenanceOutput(runs=1, messages=3)
