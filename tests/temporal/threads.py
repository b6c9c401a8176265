"""What the tests of threads and of delegation run beside the scenarios, and how they look at it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from temporalio import activity
from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from harness_temporal import HarnessDurability, StepPersistence
from harness_temporal.step_persistence import StepStore
from harness_temporal.temporal.delegation import Delegate, delegation_toolset
from harness_temporal.temporal.threads import ApprovalReminder
from tests.temporal.effects import note
from tests.temporal.scenarios import HEARTBEAT, script, stream_script

REMIND = 'remind'
TOPIC = 'events'


def new_id() -> str:
    return f'thread_{uuid.uuid4().hex}'


def agents(store: StepStore, folder: Path) -> list[Agent[Any, Any]]:
    streaming = Agent(
        FunctionModel(script, stream_function=stream_script),
        name='streaming',
        capabilities=[
            StepPersistence[None](store=store, agent_name='streaming'),
            HarnessDurability[None](activity_config={'heartbeat_timeout': HEARTBEAT}, event_stream_topic=TOPIC),
        ],
        output_type=[str, DeferredToolRequests],
    )

    @streaming.tool_plain
    async def look() -> str:
        note(folder, 'looked')
        return 'looked'

    @streaming.tool_plain(requires_approval=True)
    async def pays_once_approved() -> str:
        note(folder, 'paid')
        return 'paid'

    @streaming.tool_plain(requires_approval=True)
    async def breaks_once_approved() -> str:
        note(folder, 'broken')
        raise RuntimeError('out of order')

    orchestrator = Agent(
        FunctionModel(delegating_script),
        name='orchestrator',
        toolsets=[
            delegation_toolset(
                Delegate(agent='scripted', description='Does what its words say.'),
                Delegate(agent='orchestrator', description='Delegates.'),
                Delegate(agent='hasty', description='Has no time.', timeout=timedelta(seconds=1)),
            )
        ],
        capabilities=[
            StepPersistence[None](store=store, agent_name='orchestrator'),
            HarnessDurability[None](activity_config={'heartbeat_timeout': HEARTBEAT}),
        ],
    )
    hasty = Agent(
        FunctionModel(script),
        name='hasty',
        capabilities=[StepPersistence[None](store=store, agent_name='hasty'), HarnessDurability[None]()],
    )

    @hasty.tool_plain
    async def waits() -> str:
        await asyncio.sleep(60)
        return 'waited'

    return [streaming, orchestrator, hasty]


def delegating_script(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Delegate one step after another, as the prompt's JSON says: `[["agent", "prompt"], …]`.

    A prompt that starts with `+` goes on with the work before it. The answer is what the delegates gave.
    """
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    asked = [part for part in parts if isinstance(part, UserPromptPart)][-1]
    given = [part.content for part in parts[parts.index(asked) :] if isinstance(part, ToolReturnPart)]
    steps = json.loads(str(asked.content))
    if len(given) == len(steps):
        texts = [str(item['output'] if isinstance(item, dict) else item) for item in given]
        return ModelResponse(parts=[TextPart(' | '.join(texts))])
    agent, prompt = steps[len(given)]
    arguments = {'prompt': prompt.removeprefix('+')}
    if prompt.startswith('+'):
        assert isinstance(given[-1], dict)
        arguments['continue_run'] = given[-1]['run_id']
    call = ToolCallPart(f'delegate_to_{agent}', arguments, tool_call_id=f'call-{len(given)}')
    return ModelResponse(parts=[call])


def activities(folder: Path) -> list[Any]:
    @activity.defn(name=REMIND)
    async def remind(reminder: ApprovalReminder) -> None:
        calls = [(call.tool, call.kind, call.answered) for call in reminder.pending]
        note(folder, 'reminded', json.dumps([reminder.number, calls]))

    return [remind]


async def legs(client: Client, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHistory]:
    """Return the histories of the workflow runs that a workflow has gone through."""
    description = await handle.describe()
    first = description.raw_description.workflow_execution_info.first_run_id
    histories: list[WorkflowHistory] = []
    next_run: str | None = first
    while next_run:
        histories.append(await client.get_workflow_handle(handle.id, run_id=next_run).fetch_history())
        ended = histories[-1].events[-1]
        next_run = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return histories
