"""A worker with the peer's agent. Imports nothing of this package: see `peer`."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from datetime import timedelta
from pathlib import Path

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from benchmarks.faults.oracle import say_ready

AGENT = 'benchmarks.faults.peer_agent'


def run_worker(address: str, task_queue: str, oracle: Path, log: Path) -> None:
    output = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    asyncio.run(_serve(address, task_queue, oracle))


async def _serve(address: str, task_queue: str, oracle: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    restrictions = SandboxRestrictions.default.with_passthrough_modules(AGENT, 'pydantic_ai_harness')
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[importlib.import_module(AGENT).PeerRun],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        build_id='peer',
        graceful_shutdown_timeout=timedelta(seconds=1),
    )
    async with worker:
        say_ready(oracle)
        await stop.wait()
