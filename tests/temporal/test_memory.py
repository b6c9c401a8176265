"""A memory in a workflow: what it adds to the history, what a replay needs, and what a worker's death repeats."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory

from harness_temporal import AgentRunInput
from harness_temporal.memory import MAIN, Append, Delete, Notebook
from harness_temporal.memory.injection import BYTES_PER_TOKEN
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal.dev_server import DevServer
from tests.memory.models import blocks_in
from tests.temporal.remembering import NAME, SEEN, Boundaries, Setting, replay, start_worker
from tests.temporal.runs import activities_of
from workflows.agent_run import AgentRunWorkflow

pytestmark = pytest.mark.temporal

BOOK = Notebook(NAME, 'Ann')
MARK = 'remember-this'
LOAD = f'agent__{NAME}__capability__memory__load'


class Started:
    """Starts workers, and what they run."""

    def __init__(self, client: Client, setting: Setting) -> None:
        self.client, self.setting = client, setting
        self.workers: list[Any] = []

    def worker(self, **changes: Any) -> Any:
        self.workers.append(start_worker(replace(self.setting, **changes)))
        return self.workers[-1]

    async def run(self, steps: int, *, user: str = BOOK.namespace) -> WorkflowHistory:
        handle = await self.begin(steps, user=user)
        assert (await handle.result()).output == 'done'
        return await handle.fetch_history()

    async def begin(self, steps: int, *, user: str = BOOK.namespace) -> Any:
        return await self.client.start_workflow(
            AgentRunWorkflow.run,
            AgentRunInput(agent=NAME, prompt=str(steps), deps={'user': user}),
            id=f'{self.setting.task_queue}-{user}',
            task_queue=self.setting.task_queue,
        )

    async def fill(self, text: str) -> None:
        store = self.setting.open_memory()
        await store.edit(BOOK, MAIN, Append(text), key='fill')
        await store.aclose()

    async def empty(self) -> None:
        store = self.setting.open_memory()
        for name in (MAIN, 'log'):
            await store.edit(BOOK, name, Delete(), key=f'empty {name}')
        await store.aclose()

    async def log(self) -> str:
        store = self.setting.open_memory()
        note = await store.read(BOOK, 'log')
        await store.aclose()
        assert note is not None
        return note.text

    def seen(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.setting.folder / SEEN).read_text().splitlines()]


@pytest.fixture(params=['inline', 'dedicated'])
def boundaries(request: pytest.FixtureRequest) -> Boundaries:
    return request.param


@pytest.fixture
async def started(
    client: Client, temporal_server: DevServer, task_queue: str, tmp_path: Path, boundaries: Boundaries
) -> AsyncIterator[Started]:
    started = Started(client, Setting(temporal_server.address, task_queue, tmp_path, boundaries))
    yield started
    for worker in started.workers:
        worker.kill()
        worker.join()


def loaded(history: WorkflowHistory) -> list[Payload]:
    """Return the results of the activities that loaded the memory."""
    scheduled = {
        event.event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == LOAD
    }
    return [
        event.activity_task_completed_event_attributes.result.payloads[0]
        for event in history.events
        if event.activity_task_completed_event_attributes.scheduled_event_id in scheduled
    ]


def size(history: WorkflowHistory) -> int:
    return sum(event.ByteSize() for event in history.events)


async def test_a_run_of_20_steps_sees_a_large_notebook_within_bounds(started: Started, boundaries: Boundaries) -> None:
    started.worker()
    without = await started.run(20, user='Ben') if boundaries == 'inline' else None
    await started.fill(f'{MARK} {"x" * 65_536}')
    history = await started.run(20)

    blocks = started.seen()[-21:]
    assert all(len(shown) == 1 and MARK in shown[0] for shown in blocks), 'in this request, and in none before it'
    assert ['`read_memory`: log' in shown[0] for shown in blocks] == [False] + [True] * 20
    assert max(len(shown[0].encode()) for shown in blocks) <= 2000 * BYTES_PER_TOKEN

    ran = Counter(activities_of(history))
    assert ran.pop(f'agent__{NAME}__model_request') == 21
    assert ran.pop(f'agent__{NAME}__toolset__memory__call_tool') == 20
    loads = ran.pop(LOAD, 0)
    assert {name.rpartition('__')[2] for name in ran} == {'start_run', 'end_run'}, 'what the run has without a memory'
    raw = b''.join(event.SerializeToString() for event in history.events)
    if without is not None:
        assert loads == 0
        assert MARK.encode() not in raw
        assert abs(size(history) - size(without)) < 0.02 * size(without)
    else:
        assert loads == 21
        results = loaded(history)
        assert len(results) == 21
        assert all(MARK.encode() in result.data for result in results)
        assert max(result.ByteSize() for result in results) < 2000 * BYTES_PER_TOKEN + 1000

    runs = SqliteStepStore(started.setting.folder / 'runs.db')
    [*_, run] = await runs.list_runs()
    snapshots = await runs.list_snapshots(run_id=run.run_id)
    assert len(snapshots[-1].messages) == 42
    assert [blocks_in(snapshot.messages) for snapshot in snapshots] == [[]] * len(snapshots)
    await runs.aclose()

    # A replay has what the run saw, whatever the notebook has become.
    await started.empty()
    await replay(history, started.setting)


@pytest.mark.parametrize('boundaries', ['inline'])
async def test_a_note_is_written_once_when_its_worker_dies(started: Started) -> None:
    doomed = started.worker(dies=True)
    handle = await started.begin(2)
    await asyncio.to_thread(doomed.join, 60)
    assert doomed.exitcode == -signal.SIGKILL
    assert await started.log() == 'line 0', 'the note is there, and nothing says so'
    started.worker()
    await handle.result()
    assert await started.log() == 'line 0\nline 1'
    history = await handle.fetch_history()
    attempts = [
        event.activity_task_started_event_attributes.attempt
        for event in history.events
        if event.HasField('activity_task_started_event_attributes')
    ]
    assert max(attempts) == 2
    runs = SqliteStepStore(started.setting.folder / 'runs.db')
    [run] = await runs.list_runs()
    effects = await runs.list_tool_effects(run_id=run.run_id)
    assert [(effect.status, effect.attempts) for effect in effects] == [('completed', 2), ('completed', 1)]
    await runs.aclose()
    await replay(history, started.setting)
