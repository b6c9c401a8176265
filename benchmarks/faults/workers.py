"""Worker processes, forked from one that has everything imported, so that a new one starts at once."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.faults.agents import agents
from benchmarks.faults.mines import Mine, MinedReports, MinedStore
from benchmarks.faults.oracle import say_ready
from benchmarks.faults.places import StoreAddress
from harness_temporal import records
from harness_temporal.temporal import HarnessPlugin, serve
from tests.forks import FORKS, import_before_forks
from workflows.agent_run import AgentRunWorkflow
from workflows.thread import ThreadWorkflow

import_before_forks('benchmarks.faults.workers')
import_before_forks('benchmarks.faults.replaying')
import_before_forks('boto3.session')
BUILD_ID = 'faults'
WORKFLOWS: list[type[Any]] = [AgentRunWorkflow, ThreadWorkflow]


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    address: str
    task_queue: str
    store: StoreAddress
    oracle: Path
    log: Path
    mine: Mine | None = None
    clock_shift: timedelta = timedelta(0)
    """How far this worker's clock is off."""


def start_worker(config: WorkerConfig) -> BaseProcess:
    process = FORKS.Process(target=_run, args=(config,), daemon=True)
    process.start()
    return process


def fill_disk(process: BaseProcess, *, full: bool) -> None:
    """Let no file of a running process grow, or let it again. It sees errors as of a full disk."""
    _, hard = resource.prlimit(_pid(process), resource.RLIMIT_FSIZE)
    resource.prlimit(_pid(process), resource.RLIMIT_FSIZE, (0 if full else hard, hard))


def _pid(process: BaseProcess) -> int:
    assert process.pid is not None
    return process.pid


def _run(config: WorkerConfig) -> None:
    keep_log(config.log)
    if config.clock_shift:
        _shift_clock(config.clock_shift)
    asyncio.run(_serve(config))


def keep_log(path: Path) -> None:
    """Send what this process prints to a file."""
    import os

    log = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _shift_clock(by: timedelta) -> None:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
            return datetime.now(tz) + by  # noqa: TID251

    records.datetime = Shifted  # pyright: ignore[reportPrivateImportUsage]


async def _serve(config: WorkerConfig) -> None:
    store: Any = config.store.open()
    if config.mine is not None:
        store = MinedStore(store, config.mine)
    reports = [MinedReports(config.mine)] if config.mine is not None else []
    client = await Client.connect(
        config.address, interceptors=reports, plugins=[HarnessPlugin(agents=agents(store, config.oracle))]
    )
    worker = Worker(
        client,
        task_queue=config.task_queue,
        workflows=WORKFLOWS,
        build_id=BUILD_ID,
        graceful_shutdown_timeout=timedelta(seconds=1),
    )
    await serve(worker, on_started=lambda: say_ready(config.oracle))
