"""A worker whose tools and model can be stopped in their middle, and notice when they are cancelled."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import temporalio.client
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from harness_temporal import HarnessDurability, StepPersistence, recovery_retryable
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal import HarnessPlugin, serve
from tests.forks import FORKS, import_before_forks
from tests.temporal.effects import note, noted
from workflows.agent_run import AgentRunWorkflow

import_before_forks('tests.faults.fenced_worker')
HEARTBEAT = timedelta(seconds=1)


def store_in(folder: Path) -> SqliteStepStore:
    return SqliteStepStore(folder / 'runs.db')


def start_worker(address: str, task_queue: str, folder: Path) -> BaseProcess:
    process = FORKS.Process(target=_run, args=(address, task_queue, folder), daemon=True)
    process.start()
    return process


def _agents(folder: Path) -> list[Agent[None, Any]]:
    async def first_waits(name: str) -> str:
        note(folder, name)
        if len(noted(folder, name)) > 1:
            return 'done by the second'
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(folder, 'cancelled')
            raise
        return 'done by the first'

    async def undeclared() -> str:
        return await first_waits('undeclared')

    @recovery_retryable
    async def declared() -> str:
        return await first_waits('declared')

    async def look() -> str:
        return 'looked'

    def calls(name: str) -> Any:
        def respond(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
            if len(messages) > 1:
                return ModelResponse(parts=[TextPart(str(messages[-1].parts[0].content))])  # pyright: ignore
            return ModelResponse(parts=[ToolCallPart(name, {}, tool_call_id='call')])

        return respond

    async def blocks_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer the first request late and otherwise, and let nothing else of the process go on meanwhile."""
        if len(messages) == 1:
            note(folder, 'asked')
            if len(noted(folder, 'asked')) == 1:
                while not (folder / 'told').exists():
                    time.sleep(0.01)  # noqa: ASYNC251
                return ModelResponse(parts=[TextPart('too late')])
        return calls('look')(messages, info)

    def agent(name: str, model: Any) -> Agent[None, Any]:
        return Agent(
            FunctionModel(model),
            name=name,
            tools=[undeclared, declared, look],
            capabilities=[
                StepPersistence[None](store=store_in(folder), agent_name=name, capture_frontier=True),
                HarnessDurability[None](activity_config={'heartbeat_timeout': HEARTBEAT}),
            ],
        )

    return [
        agent('calls_undeclared', calls('undeclared')),
        agent('calls_declared', calls('declared')),
        agent('slow', blocks_once),
    ]


def _run(address: str, task_queue: str, folder: Path) -> None:
    asyncio.run(_serve(address, task_queue, folder))


class NoteEnds(temporalio.client.Interceptor, Interceptor):
    """Notes when an attempt is over, with all that it writes. Given to the client: outside of the boundaries."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        folder = self._folder

        class Inbound(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                try:
                    return await super().execute_activity(input)
                finally:
                    note(folder, f'over-{os.getpid()}')

        return Inbound(next)


async def _serve(address: str, task_queue: str, folder: Path) -> None:
    plugin = HarnessPlugin(agents=_agents(folder))
    client = await Client.connect(address, interceptors=[NoteEnds(folder)], plugins=[plugin])
    await serve(Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow], build_id='tests'))
