"""Worker processes that can really be killed, and replays in processes that know nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from pydantic_ai import Agent
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from harness_temporal.records import Batch, ToolEffectRecord
from harness_temporal.step_persistence import InMemoryStepStore, SqliteStepStore, StepStore
from harness_temporal.temporal import HarnessPlugin, serve
from tests.forks import FORKS, import_before_forks
from tests.temporal import scenarios, threads
from tests.temporal.replaying import replay_elsewhere
from tests.temporal.stateful import StatefulRun
from workflows.agent_run import AgentRunWorkflow
from workflows.maintenance import StoreMaintenanceWorkflow
from workflows.thread import ThreadWorkflow

KillPoint = Literal['before_started', 'after_started', 'after_effect', 'after_finish', 'while_reporting']

import_before_forks('tests.temporal.processes')


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    address: str
    task_queue: str
    folder: Path
    kill_at: KillPoint | None = None
    boundaries: Literal['inline', 'dedicated'] = 'inline'
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the agents' `StepPersistence`."""
    postgres: tuple[str, str] | None = None
    """DSN and schema; SQLite in the folder by default."""
    max_cached_workflows: int = 100

    def open_store(self) -> StepStore:
        if self.postgres is not None:
            from harness_temporal.stores import PostgresStepStore

            dsn, schema = self.postgres
            return PostgresStepStore(dsn, schema=schema)
        return SqliteStepStore(self.folder / 'runs.db')


@dataclass
class Workers:
    address: str
    task_queue: str
    folder: Path
    processes: list[BaseProcess] = field(default_factory=list)

    @property
    def config(self) -> WorkerConfig:
        return WorkerConfig(address=self.address, task_queue=self.task_queue, folder=self.folder)

    def start(self, **settings: Any) -> BaseProcess:
        process = FORKS.Process(target=_run_worker, args=(replace(self.config, **settings),))
        process.start()
        self.processes.append(process)
        return process

    def kill_all(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    @property
    def deaths(self) -> int:
        return sum(process.exitcode == -signal.SIGKILL for process in self.processes)


async def wait_until_dead(process: BaseProcess) -> None:
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL, process.exitcode


def die_once(folder: Path) -> None:
    """Kill this process the first time any process of the test gets here."""
    try:
        (folder / 'died').touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class KillingStore:
    """A store whose process dies at one point of a tool effect's life."""

    def __init__(self, store: StepStore, kill_at: KillPoint, folder: Path) -> None:
        self._store, self._kill_at, self._folder = store, kill_at, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, records: Batch) -> None:
        statuses = {record.status for record in records if isinstance(record, ToolEffectRecord)}
        self._die('before_started', 'started' in statuses)
        # The tool's body is over: its effect is there, and nothing says so yet.
        self._die('after_effect', bool(statuses & {'completed', 'failed'}))
        await self._store.commit(records)
        self._die('after_started', 'started' in statuses)
        self._die('after_finish', bool(statuses & {'completed', 'failed'}))

    def _die(self, point: KillPoint, here: bool) -> None:
        if here and self._kill_at == point:
            die_once(self._folder)


def _agents(store: StepStore, config: WorkerConfig) -> list[Agent[Any, Any]]:
    agents = scenarios.agents(store, config.folder, boundaries=config.boundaries, **config.settings)
    return [*agents, *threads.agents(store, config.folder)]


def _run_worker(config: WorkerConfig) -> None:
    asyncio.run(_serve(config))


async def _serve(config: WorkerConfig) -> None:
    store = config.open_store()
    if config.kill_at is not None:
        store = KillingStore(store, config.kill_at, config.folder)
    agents = _agents(store, config)
    # Given to the client, it is outside the plugin's boundaries: when it strikes, everything is written.
    reporting = [scenarios.DieWhileReporting(config.folder)] if config.kill_at == 'while_reporting' else []
    client = await Client.connect(config.address, interceptors=reporting, plugins=[HarnessPlugin(agents=agents)])
    worker = Worker(
        client,
        task_queue=config.task_queue,
        workflows=[AgentRunWorkflow, StoreMaintenanceWorkflow, StatefulRun, ThreadWorkflow],
        activities=[*scenarios.activities(store), *threads.activities(config.folder)],
        build_id='tests',
        max_cached_workflows=config.max_cached_workflows,
        graceful_shutdown_timeout=timedelta(seconds=2),
    )
    await serve(worker)


class ReadOnlyStore(InMemoryStepStore):
    """Fails whatever would write: a replay must not."""

    async def commit(self, records: Batch) -> None:
        raise AssertionError(f'a replay wrote {records}')


async def replay(history: WorkflowHistory, config: WorkerConfig) -> None:
    """Replay a history in a fresh process without cache, with a store that refuses every write."""
    await replay_all([history], config)


async def replay_all(histories: Sequence[WorkflowHistory], config: WorkerConfig) -> None:
    """Replay histories, one after another."""
    await replay_elsewhere(histories, partial(_replayer, config))


@asynccontextmanager
async def _replayer(config: WorkerConfig) -> AsyncGenerator[Replayer]:
    agents = _agents(ReadOnlyStore(), config)
    workflows = [AgentRunWorkflow, StatefulRun, ThreadWorkflow]
    yield Replayer(workflows=workflows, plugins=[HarnessPlugin(agents=agents)], build_id='tests')
