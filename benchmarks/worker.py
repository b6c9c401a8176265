"""`python -m benchmarks.worker`: a worker of one variant, until its standard input closes.

It says in one line of JSON when it starts to poll, and with which versions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from temporalio.client import Client, Plugin
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from benchmarks.agents import STORE
from benchmarks.workflow import BenchmarkRun

VERSIONS = ('pydantic-ai-slim', 'pydantic', 'temporalio')


def plugin(variant: str) -> Plugin:
    if variant in ('ours', 'dedicated'):
        from harness_temporal import HarnessPlugin

        return HarnessPlugin()
    if variant in ('stored', 'sealed'):
        from benchmarks.payloads import plugin_of

        return plugin_of(variant, Path(os.environ[STORE]))
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin

    return PydanticAIPlugin()


async def run(variant: str, address: str, task_queue: str, *, pass_through: bool) -> None:
    restrictions = SandboxRestrictions.default
    if pass_through:
        restrictions = restrictions.with_passthrough_modules('benchmarks.agents')
    client = await Client.connect(address, plugins=[plugin(variant)])
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[BenchmarkRun],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        build_id='benchmark',
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    started = {'started_at': time.time(), 'versions': {name: version(name) for name in VERSIONS}}
    async with worker:
        print(json.dumps(started), flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.worker')
    parser.add_argument('variant')
    parser.add_argument('address')
    parser.add_argument('task_queue')
    parser.add_argument('--pass-through', action='store_true', help='pass the agent through the sandbox by hand')
    given = parser.parse_args()
    asyncio.run(run(given.variant, given.address, given.task_queue, pass_through=given.pass_through))


if __name__ == '__main__':
    main()
