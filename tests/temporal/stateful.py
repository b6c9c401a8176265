"""An agent whose tools keep capability state, in a workflow that runs it with an executable."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ImageUrl, ToolCallPart, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_json
from temporalio import activity, workflow

from harness_temporal import AgentExecutable, HarnessState, RunBindings
from harness_temporal.errors import StateError
from harness_temporal.state import HarnessContext
from harness_temporal.step_persistence.carrying import CARRIED_KEY
from harness_temporal.temporal.agent_run import worker_agents
from tests.temporal.effects import note

COUNTER = 'acme.counter'
SEEN = 'acme.seen'
THREAD = 'thr_stateful'
LOOK_ALIKE = {CARRIED_KEY: {'version': 1, 'state_writes': [{'namespace': COUNTER, 'version': '1', 'data': '{}'}]}}


class Counter(BaseModel):
    value: int


class Seen(BaseModel):
    results: list[str]


class Large(BaseModel):
    text: str


async def count(ctx: RunContext[None]) -> int:
    """Count one on, and say to what."""
    state = HarnessContext.of(ctx).state
    current = await state.read(COUNTER, Counter, version='1')
    counter = Counter(value=(current.value if current is not None else 0) + 1)
    await state.write(COUNTER, counter, version='1')
    return counter.value


async def see(ctx: RunContext[None], result: Any) -> None:
    state = HarnessContext.of(ctx).state
    seen = await state.read(SEEN, Seen, version='1') or Seen(results=[])
    await state.write(
        SEEN, Seen(results=[*seen.results, f'{type(result).__name__} {to_json(result).decode()}']), version='1'
    )


@dataclass
class SeesResults(WrapperToolset[None]):
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        result = await super().call_tool(name, tool_args, ctx, tool)
        await see(ctx, result)
        return result


@dataclass
class Counts(AbstractCapability[None]):
    """Keeps state from its hooks, and sees what tools give, in both places where one can."""

    async def before_run(self, ctx: RunContext[None]) -> None:
        await count(ctx)

    async def after_tool_execute(
        self, ctx: RunContext[None], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, result: Any
    ) -> Any:
        await see(ctx, result)
        return result

    def get_wrapper_toolset(self, toolset: AbstractToolset[None]) -> AbstractToolset[None]:
        return SeesResults(toolset)


def add_tools(agent: Agent[None, Any], folder: Path) -> None:
    async def counted(ctx: RunContext[None]) -> str:
        return f'counted {await count(ctx)}'

    agent.tool(counted)
    agent.tool(name='counted_in_workflow', metadata={'temporal': False})(counted)
    agent.tool(name='counted_in_child', metadata={'temporal': {'child_workflow': {}}})(counted)

    @agent.tool_plain
    async def quiet() -> str:
        return 'quiet'

    @agent.tool
    async def pays(ctx: RunContext[None]) -> str:
        note(folder, 'paid')
        return await counted(ctx)

    @agent.tool
    async def retries(ctx: RunContext[None]) -> str:
        raise ModelRetry(await counted(ctx))

    @agent.tool
    async def fails(ctx: RunContext[None]) -> str:
        raise ToolFailed(await counted(ctx))

    @agent.tool
    async def invalid(ctx: RunContext[None]) -> str:
        await count(ctx)
        return str(Counter.model_validate({'value': 'many'}))

    @agent.tool
    async def asks(ctx: RunContext[None]) -> str:
        raise ApprovalRequired(metadata={'why': await counted(ctx)})

    @agent.tool
    async def structured(ctx: RunContext[None]) -> ToolReturn[Any]:
        value = await counted(ctx)
        return ToolReturn({'kind': 'tool-return', 'return_value': value}, content='=the end', metadata={'a': [1]})

    @agent.tool
    async def files(ctx: RunContext[None]) -> list[Any]:
        await count(ctx)
        image = BinaryContent(b'\x89PNG\x00\xff', media_type='image/png')
        return [image, ImageUrl('https://cdn.test/a.png'), {'kind': 'image-url', 'url': 'x', 'own': 1}]

    @agent.tool
    async def mapping(ctx: RunContext[None]) -> dict[str, Any]:
        return {'kind': 'tool-return', 'return_value': await counted(ctx)}

    @agent.tool_plain
    async def looks_alike() -> ToolReturn[Any]:
        return ToolReturn('alike', metadata=LOOK_ALIKE)

    @agent.tool
    async def looks_alike_and_counts(ctx: RunContext[None]) -> ToolReturn[Any]:
        return ToolReturn(await counted(ctx), metadata=LOOK_ALIKE)

    agent.tool_plain(name='looks_alike_in_workflow', metadata={'temporal': False})(looks_alike)

    @agent.tool
    async def unwritable(ctx: RunContext[None]) -> str:
        await count(ctx)
        return 'file-\udcff'

    @agent.tool
    async def delegates(ctx: RunContext[None]) -> str:
        inner = Agent(agent.model, name='inner')
        inner.tool(counted)
        try:
            return (await inner.run('counted')).output
        except StateError as error:
            return f'{error.code} {await count(ctx)}'

    @agent.tool
    async def early(ctx: RunContext[None]) -> str:
        return await counted(ctx)

    @agent.tool
    async def late(ctx: RunContext[None]) -> str:
        info = activity.info()
        handle = activity.client().get_workflow_handle(info.workflow_id or '')
        # Until the result of `early` has reached the workflow.
        while len((await handle.describe()).raw_description.pending_activities) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await HarnessContext.of(ctx).state.write('acme.late', Counter(value=1), version='1')
        return await counted(ctx)

    @agent.tool
    async def wrong_version(ctx: RunContext[None]) -> str:
        return str(await HarnessContext.of(ctx).state.read(COUNTER, Counter, version='2'))

    @agent.tool
    async def too_large(ctx: RunContext[None]) -> str:
        await HarnessContext.of(ctx).state.write(COUNTER, Large(text='x' * 1024 * 1024), version='1')
        return 'written'


def dynamic_tools() -> DynamicToolset[None]:
    async def found(ctx: RunContext[None]) -> str:
        return f'found {await count(ctx)}'

    return DynamicToolset(lambda ctx: FunctionToolset([found]), id='found')


@dataclass(frozen=True)
class StatefulOutput:
    status: str
    output: str
    state: str


async def execute(executable: AgentExecutable[None, Any], prompt: str) -> StatefulOutput:
    result = await executable.run(prompt, bindings=RunBindings(), previous_state=HarnessState.new(thread_id=THREAD))
    output = '' if isinstance(result.output, DeferredToolRequests) else str(result.output)
    return StatefulOutput(result.status, output, result.state.model_dump_json())


@workflow.defn
class StatefulRun:
    @workflow.run
    async def run(self, prompt: str) -> StatefulOutput:
        agents = worker_agents.get()
        assert agents is not None
        executable = AgentExecutable(
            agents.agent('stateful'), now=workflow.now, new_run_id=lambda: f'run-{workflow.uuid4().hex}'
        )
        return await execute(executable, prompt)
