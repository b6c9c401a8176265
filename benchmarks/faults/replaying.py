"""Replays histories, each in a fresh process whose store refuses every write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from benchmarks.faults.agents import agents
from benchmarks.faults.workers import BUILD_ID, WORKFLOWS, keep_log
from harness_temporal.records import Batch
from harness_temporal.stores import InMemoryStepStore
from harness_temporal.temporal import HarnessPlugin
from tests.forks import FORKS

_AT_ONCE = 2


class ReadOnlyStore(InMemoryStepStore):
    async def commit(self, records: Batch) -> None:
        raise AssertionError(f'a replay wrote {records}')


async def replay_all(histories: list[WorkflowHistory], log: Path) -> list[str]:
    """Return what failed."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def replay(history: WorkflowHistory) -> str | None:
        async with places:
            failure = await asyncio.to_thread(_in_fresh_process, history, log)
        return f'{history.workflow_id} does not replay: {failure}' if failure is not None else None

    return [failure for failure in await asyncio.gather(*map(replay, histories)) if failure is not None]


def _in_fresh_process(history: WorkflowHistory, log: Path) -> str | None:
    receiver, sender = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_replay, args=(history.workflow_id, history.to_json(), log, sender), daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return 'the process ended without an answer'
    finally:
        process.join()


def _replay(workflow_id: str, history: str, log: Path, sender: Any) -> None:
    keep_log(log)

    async def run() -> str | None:
        plugin = HarnessPlugin(agents=agents(ReadOnlyStore(), Path('nowhere')))
        # Without looking for deadlocks: a machine that has much to do is none.
        replayer = Replayer(workflows=WORKFLOWS, plugins=[plugin], build_id=BUILD_ID, debug_mode=True)
        parsed = WorkflowHistory.from_json(workflow_id, history)
        result = await replayer.replay_workflow(parsed, raise_on_replay_failure=False)
        return repr(result.replay_failure) if result.replay_failure is not None else None

    sender.send(asyncio.run(run()))
