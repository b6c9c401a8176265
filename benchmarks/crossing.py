"""What crosses the Temporal boundary in a run: the bytes that its activities are given and give, from its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle

from benchmarks import driver
from benchmarks.boundaries import WARM_UP, Shape


async def crossed_bytes(client: Client, python: Path, variant: str, shape: Shape) -> int:
    """Run a variant once. Returns the bytes of all that its activities were given and gave."""
    async with driver.bench(client, python, variant) as bench, bench.worker(pass_through=True):
        await (await bench.start(*WARM_UP)).result()
        handle = await bench.start(*shape)
        await handle.result()
        return await _payload_bytes(handle)


async def _payload_bytes(handle: WorkflowHandle[Any, Any]) -> int:
    return sum([_bytes(event) async for event in handle.fetch_history_events()])


def _bytes(event: HistoryEvent) -> int:
    match event.WhichOneof('attributes'):
        case 'activity_task_scheduled_event_attributes':
            scheduled = event.activity_task_scheduled_event_attributes
            return scheduled.input.ByteSize() + scheduled.header.ByteSize()
        case 'activity_task_completed_event_attributes':
            return event.activity_task_completed_event_attributes.result.ByteSize()
        case _:
            return 0
