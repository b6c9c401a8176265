"""The histories of a run's workflows, and what they say was scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from temporalio.client import Client, WorkflowHistory

from benchmarks.faults.runs import Leg, patiently


async def histories_of(client: Client, leg: Leg) -> list[WorkflowHistory]:
    """Return the histories of the workflow runs that one workflow went through."""
    first = await patiently(client.get_workflow_handle(leg.workflow_id).describe)
    next_run = first.raw_description.workflow_execution_info.first_run_id
    histories: list[WorkflowHistory] = []
    while next_run:
        handle = client.get_workflow_handle(leg.workflow_id, run_id=next_run)
        histories.append(await patiently(partial(handle.fetch_history)))
        ended = histories[-1].events[-1]
        next_run = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return histories


def scheduled(histories: Sequence[WorkflowHistory]) -> Counter[str]:
    """Count the activities by the last part of their name."""
    return Counter(
        event.activity_task_scheduled_event_attributes.activity_type.name.split('__')[-1]
        for history in histories
        for event in history.events
        if event.HasField('activity_task_scheduled_event_attributes')
    )
