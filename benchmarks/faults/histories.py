"""How workflows went, as Temporal tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory

from benchmarks.faults.runs import patiently


@dataclass(frozen=True)
class Went:
    """A workflow, with the workflow runs that it went through."""

    workflow_id: str
    histories: list[WorkflowHistory]
    children: list[Went]

    @property
    def first_run_id(self) -> str:
        return self.histories[0].events[0].workflow_execution_started_event_attributes.first_execution_run_id

    @property
    def is_completed(self) -> bool:
        return self.histories[-1].events[-1].HasField('workflow_execution_completed_event_attributes')

    def all_histories(self) -> Iterator[WorkflowHistory]:
        """Yield its histories, and those of the workflows below it."""
        yield from self.histories
        for child in self.children:
            yield from child.all_histories()

    def scheduled(self) -> Counter[str]:
        """Count its activities by the last part of their name."""
        return Counter(
            event.activity_task_scheduled_event_attributes.activity_type.name.split('__')[-1]
            for event in _events(self.histories)
            if event.HasField('activity_task_scheduled_event_attributes')
        )


async def how_it_went(client: Client, workflow_id: str) -> Went:
    """Return a workflow's histories, and those of its children."""
    first = await patiently(client.get_workflow_handle(workflow_id).describe)
    next_run = first.raw_description.workflow_execution_info.first_run_id
    histories: list[WorkflowHistory] = []
    while next_run:
        handle = client.get_workflow_handle(workflow_id, run_id=next_run)
        histories.append(await patiently(partial(handle.fetch_history)))
        ended = histories[-1].events[-1]
        next_run = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    children = [
        event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        for event in _events(histories)
        if event.HasField('child_workflow_execution_started_event_attributes')
    ]
    return Went(workflow_id, histories, [await how_it_went(client, child) for child in children])


def _events(histories: list[WorkflowHistory]) -> Iterator[HistoryEvent]:
    for history in histories:
        yield from history.events
