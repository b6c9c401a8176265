"""The part of a campaign that applies to the peer.

Its workers are killed, told to end and stopped as ours are, and its Temporal server is disturbed as ours is. What is
counted are the runs that end, and the effects of tools that nobody declared repeatable.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client, WorkflowFailureError
from temporalio.runtime import Runtime, TelemetryConfig

from benchmarks.faults.nemesis import Nemesis
from benchmarks.faults.oracle import oracle
from benchmarks.faults.peer_worker import AGENT, run_worker
from benchmarks.faults.places import Place, StoreAddress
from benchmarks.faults.plan import planned_faults, planned_runs, planned_workers
from benchmarks.faults.runs import patiently
from benchmarks.faults.script import prompt
from benchmarks.faults.temporal_server import temporal_server
from benchmarks.faults.workers import WorkerConfig

_FORKS = multiprocessing.get_context('forkserver')
_QUIET_SECONDS = 120


def _start_worker(config: WorkerConfig) -> BaseProcess:
    process = _FORKS.Process(
        target=run_worker, args=(config.address, config.task_queue, config.oracle, config.log), daemon=True
    )
    process.start()
    return process


async def campaign(*, seed: int, runs: int, kills: int, workers: int) -> dict[str, Any]:
    """Do to the peer what the seed says, and count."""
    with TemporaryDirectory(prefix='faults-') as place:
        folder = Path(place)
        async with oracle(folder) as outside, temporal_server(folder) as server:
            # Read when the workers' first process imports the agent.
            os.environ |= {'FAULTS_STORE': str(folder / 'runs.db'), 'FAULTS_ORACLE': str(outside.socket)}
            _FORKS.set_forkserver_preload(['benchmarks.faults.peer_worker', AGENT])
            config = WorkerConfig(
                address=server.proxy.address,
                task_queue='peer',
                store=StoreAddress(''),
                oracle=outside.socket,
                log=folder / 'workers.log',
            )
            healthy = (replace(planned, mine=None, clock_shift=timedelta(0)) for planned in planned_workers(seed))
            nemesis = Nemesis(
                config, workers, Place(config.store, config.store), server, outside, healthy, _start_worker
            )
            client = await Client.connect(
                server.address,
                plugins=[PydanticAIPlugin()],
                runtime=Runtime(telemetry=TelemetryConfig(logging=None)),
            )
            ended: Counter[str] = Counter()

            async def one(workflow_id: str, steps: list[list[str]]) -> None:
                handle = await client.start_workflow(
                    'PeerRun',
                    prompt(steps),
                    id=workflow_id,
                    task_queue='peer',
                    result_type=str,
                    task_timeout=timedelta(seconds=5),
                )
                try:
                    await patiently(handle.result)
                    ended['completed'] += 1
                except WorkflowFailureError:
                    ended['failed'] += 1

            over = asyncio.Event()
            raging = asyncio.create_task(nemesis.rage(planned_faults(seed), until=over))
            # Each call is one to an undeclared tool: those are what is compared.
            tasks = [
                asyncio.create_task(
                    one(run.workflow_id, [['pay' for _ in step] for step in chain(run.steps, *run.messages)])
                )
                for run in planned_runs(seed, runs)
            ]
            while nemesis.kills < kills and not all(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=0.05)
            over.set()
            await raging
            _, late = await asyncio.wait(tasks, timeout=_QUIET_SECONDS)
            for task in late:
                task.cancel()
            nemesis.end()
        return {
            'kills': nemesis.kills,
            'runs': runs,
            'ended': dict(ended),
            'lost_runs': len(late),
            'effects': outside.effects.total(),
            'double_effects': sum(count > 1 for count in outside.effects.values()),
        }
