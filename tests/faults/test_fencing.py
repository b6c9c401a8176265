"""An attempt that was presumed dead and wakes up changes nothing that its successor wrote, and learns of it."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from harness_temporal import AgentRunInput, AgentRunOutput
from harness_temporal.step_persistence.operations import RESPONSE_METADATA_KEY
from harness_temporal.stores import StepStore
from harness_temporal.temporal.dev_server import DevServer
from tests.faults.fenced_worker import start_worker, store_in
from tests.temporal.effects import noted
from tests.temporal.runs import until
from workflows.agent_run import AgentRunWorkflow

pytestmark = pytest.mark.temporal
StartWorker = Callable[[], BaseProcess]


@pytest.fixture
def new_worker(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> Iterator[StartWorker]:
    started: list[BaseProcess] = []

    def start() -> BaseProcess:
        started.append(start_worker(temporal_server.address, task_queue, tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.join()


def tell(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


async def run_past_a_stopped_worker(
    client: Client, task_queue: str, new_worker: StartWorker, agent: str, stop_when: Callable[[], bool]
) -> tuple[BaseProcess, AgentRunOutput]:
    """Stop the first worker in the middle, and let another one bring the run to its end."""
    stopped = new_worker()
    handle = await client.start_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent=agent, prompt='go'),
        id=f'run-{uuid.uuid4()}',
        task_queue=task_queue,
        # The stopped worker still has a request for work open, and may get the workflow's next task.
        task_timeout=timedelta(seconds=2),
    )
    await until(stop_when)
    tell(stopped, signal.SIGSTOP)
    new_worker()
    return stopped, await handle.result()


async def kept(store: StepStore, run_id: str) -> tuple[Any, ...]:
    """Return all that a store has of a run."""
    return (
        await store.list_events(run_id=run_id),
        await store.list_tool_effects(run_id=run_id),
        await store.list_snapshots(run_id=run_id, include_interrupted=True),
    )


@pytest.mark.parametrize(('tool', 'bodies', 'status'), [('undeclared', 1, 'started'), ('declared', 2, 'completed')])
async def test_late_attempt_at_a_tool_is_cancelled_and_leaves_the_ledger_as_it_is(
    client: Client, task_queue: str, new_worker: StartWorker, tmp_path: Path, tool: str, bodies: int, status: str
) -> None:
    stopped, ended = await run_past_a_stopped_worker(
        client, task_queue, new_worker, f'calls_{tool}', lambda: bool(noted(tmp_path, tool))
    )
    store = store_in(tmp_path)
    before = await kept(store, ended.run_id)
    [effect] = before[1]
    assert effect.status == status

    tell(stopped, signal.SIGCONT)
    await until(lambda: bool(noted(tmp_path, 'cancelled')))
    # Whatever it writes, it writes before it ends.
    tell(stopped, signal.SIGTERM)
    await asyncio.to_thread(stopped.join, 30)

    assert len(noted(tmp_path, tool)) == bodies
    assert await kept(store, ended.run_id) == before
    await store.aclose()


async def test_late_response_of_a_model_takes_no_place(
    client: Client, task_queue: str, new_worker: StartWorker, tmp_path: Path
) -> None:
    stopped, ended = await run_past_a_stopped_worker(
        client, task_queue, new_worker, 'slow', lambda: bool(noted(tmp_path, 'asked'))
    )
    assert ended.output == 'looked'
    store = store_in(tmp_path)
    before = await kept(store, ended.run_id)

    (tmp_path / 'told').touch()
    ends = f'over-{stopped.pid}'
    so_far = len(noted(tmp_path, ends))
    tell(stopped, signal.SIGCONT)
    await until(lambda: len(noted(tmp_path, ends)) > so_far)

    assert await kept(store, ended.run_id) == before
    last = [event for event in before[0] if event.kind == 'model_request_completed'][-1]
    key = last.metadata[RESPONSE_METADATA_KEY]
    assert await store.get_model_response(run_id=ended.run_id, key=key) is not None
    await store.aclose()
