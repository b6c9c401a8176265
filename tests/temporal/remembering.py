"""An agent with a memory, its workers and its replays. The prompt says how many notes it writes, one in each step."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from harness_temporal import HarnessDurability, Memory, PortableState, StepPersistence
from harness_temporal.memory import Edit, MemoryStore, Notebook, SqliteMemoryStore
from harness_temporal.step_persistence import InMemoryStepStore, SqliteStepStore, StepStore
from harness_temporal.temporal import HarnessPlugin, serve
from tests.forks import FORKS, import_before_forks
from tests.memory.models import blocks_in
from tests.temporal.replaying import replay_elsewhere
from workflows.agent_run import AgentRunWorkflow

Boundaries = Literal['inline', 'dedicated']
NAME = 'remembering'
SEEN = 'seen.jsonl'
import_before_forks('tests.temporal.remembering')


@dataclass
class Deps:
    user: str


@dataclass(frozen=True)
class Setting:
    """What a worker needs to know."""

    address: str
    task_queue: str
    folder: Path
    boundaries: Boundaries
    dies: bool = False
    """The worker dies when it has written its first note, before anybody is told."""
    max_cached_workflows: int = 100

    def open_memory(self) -> SqliteMemoryStore:
        return SqliteMemoryStore(self.folder / 'memory.db')


class _DyingStore(SqliteMemoryStore):
    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        await super()._edit(notebook, name, edit, key)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class _NoStore:
    """Fails whatever would read or write: a replay must not."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f'a replay used {name}')


def agent(runs: StepStore, memory: MemoryStore, boundaries: Boundaries, folder: Path) -> Agent[Deps, str]:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        with (folder / SEEN).open('a') as seen:
            seen.write(json.dumps(blocks_in(messages)) + '\n')
        steps = int(_prompt(messages))
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step == steps:
            return ModelResponse(parts=[TextPart('done')])
        arguments = {'text': f'line {step}', 'note': 'log'}
        return ModelResponse(parts=[ToolCallPart('write_memory', arguments, tool_call_id=f'call-{step}')])

    return Agent(
        FunctionModel(answer),
        name=NAME,
        deps_type=Deps,
        capabilities=[
            StepPersistence(store=runs, agent_name=NAME),
            PortableState(),
            Memory[Deps](store=memory, namespace=lambda deps: deps.user, boundaries=boundaries),
            HarnessDurability(activity_config={'heartbeat_timeout': timedelta(seconds=1)}),
        ],
    )


def _prompt(messages: list[ModelMessage]) -> str:
    return next(
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str) and part.content.isdigit()
    )


def start_worker(setting: Setting) -> Any:
    process = FORKS.Process(target=_run_worker, args=(setting,))
    process.start()
    return process


def _run_worker(setting: Setting) -> None:
    asyncio.run(_serve(setting))


async def _serve(setting: Setting) -> None:
    memory = (_DyingStore if setting.dies else SqliteMemoryStore)(setting.folder / 'memory.db')
    runs = SqliteStepStore(setting.folder / 'runs.db')
    agents = [agent(runs, memory, setting.boundaries, setting.folder)]
    client = await Client.connect(setting.address, plugins=[HarnessPlugin(agents=agents)])
    worker = Worker(
        client,
        task_queue=setting.task_queue,
        workflows=[AgentRunWorkflow],
        build_id='tests',
        max_cached_workflows=setting.max_cached_workflows,
        graceful_shutdown_timeout=timedelta(seconds=2),
    )
    await serve(worker)


async def replay(history: WorkflowHistory, setting: Setting) -> None:
    """Replay a history in a fresh process without its stores."""
    await replay_elsewhere([history], partial(_replayer, setting))


@asynccontextmanager
async def _replayer(setting: Setting) -> AsyncGenerator[Replayer]:
    memory: Any = _NoStore()
    agents = [agent(InMemoryStepStore(), memory, setting.boundaries, setting.folder)]
    yield Replayer(workflows=[AgentRunWorkflow], plugins=[HarnessPlugin(agents=agents)], build_id='tests')
