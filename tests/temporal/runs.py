"""Start a run of the scripted agent and look at what it left."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from harness_temporal import AgentRunInput, AgentRunOutput
from harness_temporal.identity import resolve_run_id
from harness_temporal.records import StepEvent
from harness_temporal.step_persistence import StepStore
from harness_temporal.step_persistence.operations import OUTCOME_METADATA_KEY
from tests.temporal.processes import WorkerConfig, Workers
from workflows.agent_run import AgentRunWorkflow


@dataclass
class Run:
    handle: WorkflowHandle[Any, AgentRunOutput]
    agent: str
    store: StepStore
    _ended: AgentRunOutput | None = field(default=None)

    @property
    def ended(self) -> AgentRunOutput:
        assert self._ended is not None
        return self._ended

    @property
    def output(self) -> str:
        assert isinstance(self.ended.output, str)
        return self.ended.output

    @property
    def run_id(self) -> str:
        """The id, known before the run has ended: it follows from the workflow's first run."""
        return resolve_run_id(
            explicit=None, agent_name=self.agent, context_run_id=f'{self.handle.first_execution_run_id}:0'
        )

    async def result(self) -> AgentRunOutput:
        self._ended = await self.handle.result()
        assert self._ended.run_id == self.run_id
        return self._ended

    async def history(self) -> WorkflowHistory:
        return await self.handle.fetch_history()

    async def events(self) -> list[StepEvent]:
        return await self.store.list_events(run_id=self.run_id)

    async def tool_events(self) -> list[tuple[str, str | None, str | None]]:
        return [
            (event.kind, event.tool_name, event.metadata.get(OUTCOME_METADATA_KEY))
            for event in await self.events()
            if event.kind.startswith('tool_call')
        ]

    async def activities(self) -> list[str]:
        return activities_of(await self.history())


def scheduled_in(history: WorkflowHistory) -> list[ActivityTaskScheduledEventAttributes]:
    """Return what the activities were scheduled with."""
    return [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField('activity_task_scheduled_event_attributes')
    ]


def activities_of(history: WorkflowHistory) -> list[str]:
    """Return the names of the activities that were scheduled."""
    return [activity.activity_type.name for activity in scheduled_in(history)]


async def until(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 30) -> None:
    """Wait for a condition, and fail when it does not come true."""
    async with asyncio.timeout(seconds):
        while True:
            held = condition()
            if held is True or (held is not False and await held):
                return
            await asyncio.sleep(0.05)


async def start(
    client: Client,
    workers: Workers,
    prompt: str | None,
    *,
    agent: str = 'scripted',
    execution_timeout: timedelta | None = None,
    **settings: Any,
) -> Run:
    config_fields = {name: value for name, value in settings.items() if name in WorkerConfig.__dataclass_fields__}
    config = replace(workers.config, **config_fields)
    fields = {name: value for name, value in settings.items() if name not in WorkerConfig.__dataclass_fields__}
    handle = await client.start_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent=agent, prompt=prompt, **fields),
        id=f'run-{uuid.uuid4()}',
        task_queue=workers.task_queue,
        execution_timeout=execution_timeout,
    )
    return Run(handle, agent, config.open_store())
