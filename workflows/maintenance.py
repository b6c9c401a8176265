"""Keeps the stores of a worker's agents from growing for ever, on a schedule."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
)

with workflow.unsafe.imports_passed_through():
    from harness_temporal.temporal import MaintenanceInput, MaintenanceOutput, run_maintenance


@workflow.defn(name='StoreMaintenance')
class StoreMaintenanceWorkflow:
    """Deletes what is old, and what nothing refers to any more."""

    @workflow.run
    async def run(self, input: MaintenanceInput) -> MaintenanceOutput:
        """Do it once. See `MaintenanceInput` and `MaintenanceOutput`."""
        return await run_maintenance(input)


async def schedule_maintenance(client: Client, input: MaintenanceInput, *, task_queue: str, every: timedelta) -> str:
    """Have the workflow run at an interval, one run at a time, and return the schedule's id.

    There is one schedule for each task queue: doing it again changes it.
    """
    schedule_id = f'store-maintenance-{task_queue}'
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(StoreMaintenanceWorkflow.run, input, id=schedule_id, task_queue=task_queue),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
    )
    try:
        await client.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(schedule_id).update(lambda _: ScheduleUpdate(schedule))
    return schedule_id
