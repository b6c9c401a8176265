"""The agents, workflows and activities that the Temporal tests run. The model is scripted by the prompt.

A prompt is a list of tool names, one step each, several in a step joined by `+`; the answer is what the tools gave.
A prompt that starts with `=` is its own answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import temporalio.client
from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset
from temporalio import activity, workflow
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from harness_temporal import (
    AgentRunInput,
    AgentRunOutput,
    HarnessContext,
    HarnessDurability,
    StepPersistence,
    annotate_tool_effect,
    recovery_retryable,
    tool_idempotency_key,
)
from harness_temporal.media import DiskMediaStore, MediaExternalizer, make_static_public_url
from harness_temporal.step_persistence import StepStore
from harness_temporal.tools import RECOVERY_RETRY_SAFE_METADATA_KEY
from tests.temporal.effects import note, noted
from tests.temporal.stateful import Counts, add_tools, dynamic_tools

HEARTBEAT = timedelta(seconds=1)
RUN_DELEGATE = 'run_delegate'
PICTURE = b'\x89PNG' + bytes(range(256)) * 300


def script(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer with the next step's tool calls, and at the end with all that the tools gave."""
    prompts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]
    if prompts[-1].startswith('='):
        return ModelResponse(parts=[TextPart(prompts[-1].removeprefix('='))])
    steps = prompts[-1].split()
    since = max(
        index
        for index, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)
    )
    done = sum(isinstance(message, ModelResponse) for message in messages[since:])
    if done < len(steps):
        calls = steps[done].split('+')
        return ModelResponse(
            parts=[ToolCallPart(name, {}, tool_call_id=f'call-{done}-{number}') for number, name in enumerate(calls)]
        )
    given = [
        str(part.content)
        for message in messages[since:]
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    return ModelResponse(parts=[TextPart(' | '.join(given))])


async def stream_script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Stream what `script` answers."""
    for index, part in enumerate(script(messages, info).parts):
        if isinstance(part, ToolCallPart):
            yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            yield part.content


async def ignore_events(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
    """Make the runs stream."""
    async for _ in events:
        pass


@dataclass(frozen=True)
class Customer:
    name: str
    since: datetime


class Counted(BaseModel):
    times: int = 0


@dataclass
class SendsLess(AbstractCapability[None]):
    """Leaves out of each request what tools gave earlier: the request is not the history."""

    async def before_model_request(
        self, ctx: RunContext[None], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        request_context.messages = [
            *(without_results(message) for message in request_context.messages[:-1]),
            request_context.messages[-1],
        ]
        return request_context


def without_results(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [
        replace(part, content='(left out)') if isinstance(part, ToolReturnPart) else part for part in message.parts
    ]
    return replace(message, parts=parts)


def agents(store: StepStore, folder: Path, *, boundaries: Any = 'inline', **settings: Any) -> list[Agent[Any, Any]]:
    """Build the agents of one worker."""

    def persistence(name: str) -> StepPersistence[None]:
        return StepPersistence(store=store, agent_name=name, boundaries=boundaries, **settings)

    @recovery_retryable
    async def look(ctx: RunContext[None]) -> str:
        note(folder, 'looked', tool_idempotency_key(ctx))
        return 'looked'

    @recovery_retryable
    async def flaky() -> str:
        note(folder, 'flaky')
        raise ConnectionError('try again')

    @recovery_retryable
    async def delegate_it() -> str:
        result = await delegate.run('pay_for_it')
        note(folder, 'delegated')
        if len(noted(folder, 'delegated')) == 1 and (folder / 'die-after-delegation').exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f'delegate said {result.output!r}'

    def durability() -> HarnessDurability[None]:
        return HarnessDurability(activity_config={'heartbeat_timeout': HEARTBEAT})

    scripted = Agent(
        FunctionModel(script),
        name='scripted',
        tools=[look, flaky, delegate_it],
        capabilities=[persistence('scripted'), durability()],
        output_type=[str, DeferredToolRequests],
    )
    forgetful = Agent(
        FunctionModel(script),
        name='forgetful',
        tools=[look],
        capabilities=[persistence('forgetful'), SendsLess(), durability()],
    )

    async def found() -> str:
        note(folder, 'found')
        return 'found'

    discovering = Agent(
        FunctionModel(script),
        name='discovering',
        toolsets=[DynamicToolset(lambda ctx: FunctionToolset([found]), id='discovered')],
        capabilities=[persistence('discovering'), durability()],
    )

    def mcp_toolset(tool: str) -> MCPToolset[None]:
        server = StdioTransport(sys.executable, ['-m', 'tests.temporal.mcp_server', str(folder), tool])
        return MCPToolset(server, id=f'mcp_{tool}')

    connected = Agent(
        FunctionModel(script),
        name='connected',
        toolsets=[
            mcp_toolset('pay_remotely'),
            mcp_toolset('look_remotely').with_metadata(**{RECOVERY_RETRY_SAFE_METADATA_KEY: True}),
        ],
        capabilities=[persistence('connected'), durability()],
    )
    blobs = DiskMediaStore(folder / 'blobs', public_url=make_static_public_url('https://cdn.test'))

    async def photograph() -> BinaryContent:
        note(folder, 'photographed')
        return BinaryContent(PICTURE, media_type='image/png')

    pictured = Agent(
        FunctionModel(script),
        name='pictured',
        tools=[photograph, look],
        capabilities=[MediaExternalizer(blobs), persistence('pictured'), durability()],
    )
    typed = Agent(
        FunctionModel(script, stream_function=stream_script),
        name='typed',
        deps_type=Customer,
        capabilities=[
            StepPersistence[Customer](store=store, agent_name='typed', boundaries=boundaries, **settings),
            HarnessDurability[Customer](
                activity_config={'heartbeat_timeout': HEARTBEAT}, event_stream_handler=ignore_events
            ),
        ],
    )

    @typed.tool
    async def greet(ctx: RunContext[Customer]) -> str:
        return f'{ctx.deps.name} since {ctx.deps.since.year}'

    delegate = Agent(FunctionModel(script), name='delegate', capabilities=[persistence('delegate')])

    @delegate.tool_plain
    async def pay_for_it() -> str:
        note(folder, 'paid')
        return 'paid by the delegate'

    @scripted.tool
    async def pay(ctx: RunContext[None]) -> str:
        await annotate_tool_effect(store, ctx, effect_summary='charge the card')
        note(folder, 'paid', tool_idempotency_key(ctx))
        return 'paid'

    @scripted.tool_plain
    async def pay_when_told() -> str:
        note(folder, 'paid')
        while not (folder / 'told').exists():  # noqa: ASYNC110  # the test is another process
            await asyncio.sleep(0.05)
        return 'paid'

    @scripted.tool_plain
    def pay_sync() -> str:
        note(folder, 'paid')
        return 'paid'

    @scripted.tool_plain
    async def broken() -> str:
        note(folder, 'broken')
        raise RuntimeError('out of order')

    @scripted.tool_plain(metadata={'temporal': {'retry_policy': {'maximum_attempts': 2, 'initial_interval': 0.1}}})
    async def broken_twice() -> str:
        note(folder, 'broken')
        raise RuntimeError('out of order')

    @scripted.tool_plain(retries=3)
    async def retries() -> str:
        note(folder, 'retries')
        if len(noted(folder, 'retries')) < 2:
            raise ModelRetry('once more')
        return 'at last'

    @scripted.tool_plain
    async def fails() -> str:
        note(folder, 'fails')
        raise ToolFailed('no such thing')

    @scripted.tool
    async def asks(ctx: RunContext[None]) -> str:
        note(folder, 'asked')
        raise ApprovalRequired(metadata={'why': 'it costs'})

    @scripted.tool
    async def asks_once(ctx: RunContext[None]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={'why': 'it costs'})
        note(folder, 'paid')
        return 'paid with approval'

    @scripted.tool(metadata={'temporal': False})
    async def count(ctx: RunContext[None]) -> str:
        state = HarnessContext.of(ctx).state
        counted = await state.read('tests', Counted, version='1') or Counted()
        counted = Counted(times=counted.times + 1)
        await state.write('tests', counted, version='1')
        return f'counted {counted.times}'

    @scripted.tool_plain
    async def recite() -> str:
        return 'line ' * 8_000

    @scripted.tool_plain
    async def elsewhere() -> str:
        note(folder, 'elsewhere')
        raise CallDeferred(metadata={'where': 'outside'})

    @scripted.tool_plain(metadata={'temporal': False})
    async def in_workflow() -> str:
        return 'computed in the workflow'

    @scripted.tool_plain(metadata={'temporal': {'child_workflow': {}}})
    async def as_child() -> str:
        return 'computed in a child workflow'

    @scripted.tool_plain(metadata={'temporal': False})
    async def delegate_to_child_workflow() -> str:
        ended = await workflow.execute_child_workflow(
            'AgentRun', AgentRunInput(agent='forgetful', prompt='look'), result_type=AgentRunOutput
        )
        return str(ended.output)

    @scripted.tool_plain(metadata={'temporal': False})
    async def delegate_to_activity() -> str:
        return await workflow.execute_activity(RUN_DELEGATE, start_to_close_timeout=timedelta(seconds=30))

    @scripted.tool_plain
    async def delegate_through_client() -> str:
        handle = await activity.client().start_workflow(
            'AgentRun',
            AgentRunInput(agent='forgetful', prompt='look'),
            id=f'{activity.info().workflow_id}-delegate',
            task_queue=activity.info().task_queue,
            result_type=AgentRunOutput,
        )
        return str((await handle.result()).output)

    @scripted.tool_plain
    async def waits() -> str:
        note(folder, 'waiting')
        await asyncio.sleep(60)
        return 'waited'

    @scripted.tool_plain
    def blocks() -> str:
        note(folder, 'waiting')
        time.sleep(2.5 * HEARTBEAT.total_seconds())
        return 'blocked'

    @scripted.tool_plain
    async def undecodable() -> str:
        note(folder, 'undecodable')
        return 'file-\udcff'

    stateful = Agent(
        FunctionModel(script),
        name='stateful',
        toolsets=[dynamic_tools()],
        capabilities=[persistence('stateful'), Counts(), durability()],
    )
    add_tools(stateful, folder)
    return [scripted, forgetful, discovering, connected, pictured, typed, stateful]


class DieWhileReporting(temporalio.client.Interceptor, Interceptor):
    """Kills its worker when a tool's attempt is over, before Temporal hears of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        folder = self._folder

        class Inbound(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                result = await super().execute_activity(input)
                if activity.info().activity_type.endswith('__call_tool'):
                    from tests.temporal.processes import die_once

                    die_once(folder)
                return result

        return Inbound(next)


def activities(store: StepStore) -> list[Any]:
    """Activities of the user's own, beside those of the agents."""
    delegate = Agent(
        FunctionModel(script),
        name='plain',
        capabilities=[StepPersistence[None](store=store, agent_name='plain')],
    )

    @activity.defn(name=RUN_DELEGATE)
    async def run_delegate() -> str:
        return str((await delegate.run('=delegated')).output)

    return [run_delegate]
