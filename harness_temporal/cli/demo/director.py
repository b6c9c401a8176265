"""Runs the show: server, store, workers, kills."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from temporalio.client import WorkflowFailureError, WorkflowHandle

from harness_temporal.cli.demo.agent import AGENT_NAME, PROMPT
from harness_temporal.cli.demo.errors import DemoError
from harness_temporal.cli.demo.files import DemoFiles
from harness_temporal.cli.demo.report import DemoReport, UnresolvedEffect
from harness_temporal.cli.demo.scene import Kill, Scene
from harness_temporal.cli.demo.server import DemoServer, demo_server
from harness_temporal.cli.demo.tools import EFFECT_TOOL, RETRYABLE_TOOL
from harness_temporal.cli.demo.worker import TASK_QUEUE, DemoWorker
from harness_temporal.cli.demo.workflow import CodeLibrarianWorkflow
from harness_temporal.records import utc_now
from harness_temporal.step_persistence import SqliteStepStore, StepStore
from harness_temporal.temporal import AgentRunInput, AgentRunOutput

TIME_LIMIT = 55.0
_POLL_INTERVAL = 0.05

Show = Callable[[Scene], None]
Handle = WorkflowHandle[CodeLibrarianWorkflow, AgentRunOutput]


@asynccontextmanager
async def stage(show: Show) -> AsyncGenerator[Director]:
    """Set the stage in a temporary folder. Leaving takes everything down, and the server's runs with it.

    Raises:
        HarnessError: The server does not start.
    """
    async with AsyncExitStack() as stack:
        files = DemoFiles(Path(stack.enter_context(TemporaryDirectory(prefix='harness-temporal-demo-'))))
        scene = Scene()
        show(scene)
        # One for each kill and one that ends the run; they do their imports while the server starts.
        workers = [stack.enter_context(DemoWorker(number, files)) for number in (1, 2, 3)]
        server = await stack.enter_async_context(demo_server(files))
        store = SqliteStepStore(files.store)
        stack.push_async_callback(store.aclose)
        yield Director(files, server, store, workers, scene, show)


class Director:
    """Starts the run, kills its workers, and watches it through its store."""

    def __init__(
        self,
        files: DemoFiles,
        server: DemoServer,
        store: StepStore,
        workers: list[DemoWorker],
        scene: Scene,
        show: Show,
    ) -> None:
        self._files = files
        self._server = server
        self._store = store
        self._worker, *self._spare_workers = workers
        self._scene = scene
        self._show = show
        self._run_id: str | None = None

    async def perform(self) -> DemoReport:
        """Run the agent to its end through both kills.

        Raises:
            DemoError: It does not end, or not as it should.
        """
        try:
            async with asyncio.timeout(TIME_LIMIT):
                return await self._perform()
        except TimeoutError:
            raise DemoError(f'The demo did not end in {TIME_LIMIT:.0f} s; it was at: {self._scene.now}') from None

    async def _perform(self) -> DemoReport:
        handle: Handle = await self._server.client.start_workflow(
            CodeLibrarianWorkflow.run,
            AgentRunInput(agent=AGENT_NAME, prompt=PROMPT),
            id=f'code-librarian-{uuid.uuid4().hex[:8]}',
            task_queue=TASK_QUEUE,
            static_summary=PROMPT,
            static_details=f'A worker is killed in the middle of `{RETRYABLE_TOOL}`, the next in `{EFFECT_TOOL}`.',
        )
        assert handle.first_execution_run_id is not None
        self._scene.ui = self._server.ui_of(handle.id, handle.first_execution_run_id)
        result = asyncio.create_task(handle.result())
        try:
            self._worker.connect(self._server.server.address)
            await self._kill_within(RETRYABLE_TOOL, result)
            await self._kill_within(EFFECT_TOOL, result)
            await self._until(result.done)
            return await self._report(handle, await _answer(result))
        finally:
            result.cancel()

    async def _kill_within(self, tool: str, result: asyncio.Task[AgentRunOutput]) -> None:
        """Kill the worker in the middle of a tool, let the next one work, and wait until the run goes on."""
        self._scene.now = f'Waiting for the worker to be in the middle of {tool}.'
        in_the_middle, successor = self._files.marker(tool).exists, self._spare_workers.pop(0)
        await self._until(lambda: result.done() or (in_the_middle() and successor.is_ready()))
        if result.done():
            await _answer(result)
            raise DemoError(f'The run ended before its worker was killed in the middle of {tool!r}.')
        # The tool's worker has nothing more to write, so what comes after these events is its successor's.
        await self._look()
        seen = len(self._scene.events)
        self._worker.kill()
        kill = Kill(tool, f'{self._worker.name} (pid {self._worker.pid})', utc_now())
        self._scene.kills.append(kill)
        self._scene.now = f'Killed {self._worker.name} in the middle of {tool}; {successor.name} takes over.'
        self._worker = successor
        self._worker.connect(self._server.server.address)
        await self._until(lambda: len(self._scene.events) > seen)
        kill.recovery_s = (self._scene.events[seen].timestamp - kill.at).total_seconds()
        self._scene.now = 'The run goes on.'

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            for process in (self._server.server, self._worker, *self._spare_workers):
                process.check()
            await self._look()
            await asyncio.sleep(_POLL_INTERVAL)

    async def _look(self) -> None:
        """Read the events that are new, and show the scene."""
        if self._run_id is None:
            self._run_id = next((run.run_id for run in await self._store.list_runs()), None)
        if self._run_id is not None:
            events = self._scene.events
            last = events[-1].seq if events else None
            events += await self._store.list_events(run_id=self._run_id, after=last or 0)
        self._show(self._scene)

    async def _report(self, handle: Handle, answer: AgentRunOutput) -> DemoReport:
        self._scene.now = None
        await self._look()
        description = await handle.describe()
        unresolved = await self._store.list_unresolved_tool_effects(run_id=answer.run_id)
        return DemoReport(
            output=str(answer.output),
            effects=len(self._files.payments()),
            kills=len(self._scene.kills),
            recovery_s=[round(kill.recovery_s or 0.0, 2) for kill in self._scene.kills],
            unresolved=[UnresolvedEffect.of(record) for record in unresolved],
            steps=max(event.step_index for event in self._scene.events),
            history_events=description.history_length,
            history_bytes=description.raw_description.workflow_execution_info.history_size_bytes,
            ui=self._scene.ui or '',
        )


async def _answer(result: asyncio.Task[AgentRunOutput]) -> AgentRunOutput:
    try:
        return await result
    except WorkflowFailureError as error:
        raise DemoError(f'The run failed: {error.cause}') from error
