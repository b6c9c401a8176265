"""`python -m benchmarks.resume`: go on from a large history in a workflow, and how long its workflow tasks take.

The server says when a worker began a workflow task and when it answered. A task that takes longer than ten seconds is
given to another worker, and one over two seconds of workflow code is taken for a deadlock by the SDK.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.test import TestModel
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import HarnessClient, HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.media import SqliteMediaStore
from harness_temporal.records import ContinuableSnapshot, RunRecord
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal.dev_server import dev_server
from harness_temporal.temporal.payloads import PayloadStorage
from workflows.agent_run import AgentRunWorkflow

MESSAGES = 2_000
BAR_SECONDS = 1.0


@dataclass(frozen=True)
class Resumed:
    """What resuming one history took."""

    history_mb: float
    messages: int
    slowest_workflow_task_s: float
    wall_s: float


def history(size: int) -> list[ModelMessage]:
    """Make a history of so many bytes: prompts and answers of equal length."""
    text = 'x' * (size // MESSAGES)
    return [
        ModelResponse(parts=[TextPart(text)]) if index % 2 else ModelRequest(parts=[UserPromptPart(text)])
        for index in range(MESSAGES)
    ]


def task_seconds(events: Iterable[HistoryEvent]) -> list[float]:
    """Return how long each workflow task took, from when a worker had it to its answer."""
    by_id = {event.event_id: event for event in events}
    took: list[float] = []
    for event in by_id.values():
        if event.HasField('workflow_task_completed_event_attributes'):
            started = by_id[event.workflow_task_completed_event_attributes.started_event_id]
            took.append(event.event_time.ToNanoseconds() / 1e9 - started.event_time.ToNanoseconds() / 1e9)
    return took


async def measure(address: str, folder: Path, megabytes: float) -> Resumed:
    """Resume a run with a history of that size on a worker in this process."""
    store = SqliteStepStore(folder / f'{megabytes}.db')
    run_id = f'large-{megabytes}'
    await store.commit(
        [
            RunRecord(run_id=run_id, registration_id=run_id),
            ContinuableSnapshot(run_id=run_id, step_index=1, messages=history(int(megabytes * 1024 * 1024))),
        ]
    )
    agent = Agent(
        TestModel(custom_output_text='done', call_tools=[]),
        name='resuming',
        capabilities=[StepPersistence[Any](store=store, agent_name='resuming'), HarnessDurability[Any]()],
    )
    payloads = PayloadStorage(SqliteMediaStore(folder / f'{megabytes}-payloads.db'))
    client = await Client.connect(address, plugins=[HarnessPlugin(agents=[agent], payloads=payloads)])
    task_queue = f'resume-{uuid4().hex}'
    harness = HarnessClient(client, agent='resuming', task_queue=task_queue)
    async with Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow], build_id='benchmark'):
        # What a worker does once is not what is measured.
        await (await harness.start('warm up')).result()
        handle = await harness.resume(run_id, prompt='go on')
        await handle.result()
    described = await handle.describe()
    assert described.close_time is not None
    took = task_seconds([event async for event in handle.fetch_history_events()])
    return Resumed(megabytes, MESSAGES, max(took), (described.close_time - described.start_time).total_seconds())


async def run(sizes: Sequence[float]) -> list[Resumed]:
    """Measure each size."""
    with TemporaryDirectory() as folder, dev_server(ui=False, log=Path(folder) / 'server.log') as server:
        return [await measure(server.address, Path(folder), size) for size in sizes]


def main() -> None:
    """Print the figures, one line each or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--megabytes', type=float, nargs='+', default=[5, 20])
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    measured = asyncio.run(run(arguments.megabytes))
    if arguments.json:
        from json import dumps

        print(dumps([asdict(item) for item in measured]))
        return
    for item in measured:
        met = 'met' if item.slowest_workflow_task_s <= BAR_SECONDS else 'MISSED'
        print(
            f'{item.history_mb} MB in {item.messages} messages: slowest workflow task '
            f'{item.slowest_workflow_task_s:.2f} s (bar {BAR_SECONDS} s: {met}), wall {item.wall_s:.1f} s'
        )


if __name__ == '__main__':
    main()
