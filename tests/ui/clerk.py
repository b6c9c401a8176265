"""An agent as people have them, its scripted model, and its worker. Its second step kills the worker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import HarnessDurability, StepPersistence, recovery_retryable
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal import HarnessPlugin, serve
from tests.forks import import_before_forks
from workflows.agent_run import AgentRunWorkflow
from workflows.thread import ThreadWorkflow

import_before_forks('tests.ui.clerk')

NAME: Final = 'clerk'
PROMPT: Final = 'Order 1042 never arrived: send it again, and refund the postage.'
STEPS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ('search_orders', {'query': 'placed:1/2..2/2 *@example.org', 'fields': ['status', 'paid_cents']}),
    ('order_courier', {'order': '1042', 'to': 'Ada Byron, 12 St James’s Square', 'cents': 1250}),
    ('search_shipments', {'order': '1042'}),
    ('refund', {'order': '1042', 'cents': 490, 'reason': 'postage\nof the first parcel'}),
)
"""The calls of a run. Their arguments have what the UI would change in prose."""


@dataclass(frozen=True)
class ClerkFiles:
    """What the clerk's workers share."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / 'runs.db'

    def die_once(self) -> None:
        """Kill this process the first time any worker gets here."""
        try:
            (self.folder / 'died').touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def script(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Make one call after another, and answer when all have been made."""
    done = sum(
        isinstance(part, ToolReturnPart)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
    )
    if done == len(STEPS):
        return ModelResponse(parts=[TextPart('The parcel is on its way again, and the postage is refunded.')])
    tool, arguments = STEPS[done]
    return ModelResponse(parts=[ToolCallPart(tool, arguments, tool_call_id=f'call-{done + 1}')])


def clerk(files: ClerkFiles) -> Agent[Any, Any]:
    """Make the agent."""

    @recovery_retryable
    async def search_orders(query: str, fields: list[str]) -> str:
        return '1042: sent'

    async def order_courier(order: str, to: str, cents: int) -> str:
        files.die_once()
        return 'ordered'

    @recovery_retryable
    async def search_shipments(order: str) -> str:
        return 'a courier was ordered'

    async def refund(ctx: RunContext[None], order: str, cents: int, reason: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return 'refunded'

    return Agent(
        FunctionModel(script, model_name='scripted'),
        name=NAME,
        output_type=[str, DeferredToolRequests],
        tools=[search_orders, order_courier, search_shipments, refund],
        capabilities=[
            StepPersistence(store=SqliteStepStore(files.store), agent_name=NAME),
            HarnessDurability(activity_config={'heartbeat_timeout': timedelta(seconds=1)}),
        ],
    )


def work(address: str, task_queue: str, folder: Path) -> None:
    """Run a worker until it is told to stop."""
    asyncio.run(_serve(address, task_queue, ClerkFiles(folder)))


async def _serve(address: str, task_queue: str, files: ClerkFiles) -> None:
    # The pictures are to show no machine's name.
    client = await Client.connect(address, identity='worker', plugins=[HarnessPlugin(agents=[clerk(files)])])
    worker = Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow, ThreadWorkflow], build_id='1')
    await serve(worker)
