"""Workers with payload storage: in the test's process, or as processes of their own that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker

from harness_temporal import AgentRunInput, AgentRunOutput, HarnessDurability, StepPersistence, recovery_retryable
from harness_temporal.encryption.keys import parse_keys
from harness_temporal.errors import StoreUnavailableError
from harness_temporal.media import DiskMediaStore, MediaContext
from harness_temporal.media.context import NO_CONTEXT
from harness_temporal.step_persistence import SqliteStepStore, StepStore
from harness_temporal.temporal import HarnessPlugin, serve
from harness_temporal.temporal.payloads import KeyRing, PayloadStorage
from tests.forks import FORKS, import_before_forks
from tests.temporal.processes import ReadOnlyStore, die_once
from tests.temporal.replaying import replay_elsewhere
from tests.temporal.scenarios import HEARTBEAT, note, noted, script
from workflows.agent_run import AgentRunWorkflow

MEGABYTE = 1_000_000
import_before_forks('tests.temporal.payloads.workers')


def noise(size: int) -> str:
    """Text that nothing compresses and no piece of which is there twice."""
    return Random(size).randbytes(size // 2).hex()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a worker process needs to know."""

    address: str
    task_queue: str
    folder: Path
    stored: bool = True
    """Whether there is a media store."""
    keys: str = ''
    """`id:base64`, the newest first."""
    limit: int | None = None
    max_cached_workflows: int = 100
    after_effect: Literal['die', 'lose_store'] | None = None
    """What the tool `page` does after its effect, the first time: kill its process, or take the media store away."""

    @property
    def media_store(self) -> DiskMediaStore:
        return SometimesAway(self.folder / 'pieces', self.away)

    @property
    def away(self) -> Path:
        """A file that keeps all processes from the media store while it is there."""
        return self.folder / 'away'

    def payloads(self) -> PayloadStorage | None:
        if not self.stored and not self.keys:
            return None
        return PayloadStorage(
            self.media_store if self.stored else None,
            keys=KeyRing.of(*parse_keys(self.keys, 'test')) if self.keys else None,
            limit_bytes=self.limit,
        )

    async def close(self) -> None:
        """Close what this process opened for payloads."""

    def plugin(self, store: StepStore) -> HarnessPlugin:
        return HarnessPlugin(agents=[agent(store, self)], payloads=self.payloads())

    async def client(self) -> Client:
        """Connect as one who only starts and awaits workflows."""
        return await Client.connect(self.address, plugins=[HarnessPlugin(payloads=self.payloads())])

    async def worker(self, *, workflows: bool = True, activities: bool = True) -> Worker:
        store = SqliteStepStore(self.folder / 'runs.db')
        return Worker(
            await Client.connect(self.address, plugins=[self.plugin(store)]),
            task_queue=self.task_queue,
            workflows=[AgentRunWorkflow, Parent] if workflows else [],
            no_remote_activities=not activities,
            build_id='tests',
            max_cached_workflows=self.max_cached_workflows,
        )

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run a worker in this process."""
        async with await self.worker():
            yield

    def process(self) -> BaseProcess:
        """Run a worker in a process of its own, which the caller kills."""
        process = FORKS.Process(target=_run_worker, args=(self,))
        process.start()
        return process

    async def start(self, prompt: str, name: str) -> WorkflowHandle[Any, AgentRunOutput]:
        return await (await self.client()).start_workflow(
            AgentRunWorkflow.run,
            AgentRunInput(agent='reader', prompt=prompt),
            id=f'{name}-{self.task_queue}',
            task_queue=self.task_queue,
        )

    async def replay(self, history: WorkflowHistory) -> None:
        """Replay in a fresh process, with an empty cache and a store that refuses to be written to."""
        await replay_elsewhere([history], partial(_replayer, self))


@workflow.defn(sandboxed=False)
class Parent:
    """Reads the large output of a child workflow, and waits."""

    def __init__(self) -> None:
        self.told = False

    @workflow.run
    async def run(self, size: int) -> None:
        given = AgentRunInput(agent='reader', prompt=f'={noise(size)}')
        await workflow.execute_child_workflow('AgentRun', given, result_type=AgentRunOutput)
        # The timer is a command: that the workflow fails instead contradicts its history.
        await workflow.wait_condition(lambda: self.told, timeout=timedelta(hours=1))

    @workflow.signal
    async def tell(self) -> None:
        self.told = True


class SometimesAway(DiskMediaStore):
    """A media store that cannot be reached while a file is there."""

    def __init__(self, directory: Path, away: Path) -> None:
        super().__init__(directory)
        self._away = away

    async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
        self._check()
        return await super().put(data, context=context)

    async def get(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bytes:
        self._check()
        return await super().get(uri, context=context)

    def _check(self) -> None:
        if self._away.exists():
            note(self._away.parent, 'refused')
            raise StoreUnavailableError('pieces', 'it is away.')


def agent(store: StepStore, setup: Setup) -> Agent[None, str]:
    @recovery_retryable
    async def page() -> str:
        note(setup.folder, 'read')
        if setup.after_effect == 'die':
            die_once(setup.folder)
        if setup.after_effect == 'lose_store' and len(noted(setup.folder, 'read')) == 1:
            setup.away.touch()
        return f'TOP-SECRET-RESULT {noise(3000)}'

    async def book() -> str:
        return noise(5 * MEGABYTE)

    async def fail() -> str:
        raise RuntimeError('TOP-SECRET-REASON')

    async def wait() -> str:
        note(setup.folder, 'waiting')
        while not (setup.folder / 'told').exists():  # noqa: ASYNC110  # the test may be another process
            await asyncio.sleep(0.05)
        return 'told'

    return Agent(
        FunctionModel(script),
        name='reader',
        tools=[page, book, fail, wait],
        capabilities=[
            StepPersistence(store=store, agent_name='reader'),
            HarnessDurability(activity_config={'heartbeat_timeout': HEARTBEAT}),
        ],
    )


def _run_worker(setup: Setup) -> None:
    async def run() -> None:
        await serve(await setup.worker())

    asyncio.run(run())


@asynccontextmanager
async def _replayer(setup: Setup) -> AsyncGenerator[Replayer]:
    yield Replayer(workflows=[AgentRunWorkflow], plugins=[setup.plugin(ReadOnlyStore())], build_id='tests')
    await setup.close()
