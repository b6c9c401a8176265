"""`PortableState`: the capability that an executable adds, or finds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from harness_temporal import AgentExecutable, HarnessContext, PortableState, RunBindings
from harness_temporal.errors import StateError
from tests.state.decision_table import recorded
from tests.state.support import Bench, Scripted, asked, calls, outcomes, pending, thread


class Note(BaseModel):
    text: str


async def note(ctx: RunContext[Any]) -> str:
    await HarnessContext.of(ctx).state.write('acme.note', Note(text='kept'), version='1')
    return 'noted'


async def test_agent_that_has_the_capability_needs_no_other_per_run() -> None:
    bench = Bench(calls('note'), 'done', tools=[Tool(note)], capabilities=[PortableState()], system_prompt='B')
    first = await bench.run('go')
    assert first.state.agent_context_state.entries['acme.note'].data == {'text': 'kept'}
    recovered = Bench('done', capabilities=[PortableState()])
    result = await recovered.run(
        previous_state=pending('plain', 'safe'), recorded_outcomes={'plain': recorded(ApprovalRequired())}
    )
    assert (asked(result)['approvals'], outcomes(result.state)) == (['plain'], {'safe': 'success: safe 1'})
    hidden = Bench('done', capabilities=[PortableState()])
    await hidden.run('go', bindings=RunBindings(deferred_tools_supported=False))
    assert 'outside' not in hidden.model.offered[0]


async def test_runs_of_one_agent_do_not_share_what_they_are_told() -> None:
    bench = Bench(calls('note'), 'one', calls('note'), 'two', tools=[Tool(note)], capabilities=[PortableState()])
    first = await bench.run('a', previous_state=thread())
    second = await bench.run('b', previous_state=thread().fork())
    assert first.thread_id != second.thread_id
    assert first.state.agent_context_state == second.state.agent_context_state
    with pytest.raises(StateError):
        await Bench(calls('note'), tools=[Tool(note)], capabilities=[PortableState()]).agent.run('plain run')


async def test_agent_that_a_tool_runs_has_no_part_in_the_thread() -> None:
    seen: list[str] = []

    async def inner_note(ctx: RunContext[Any]) -> str:
        try:
            await note(ctx)
        except StateError as error:
            seen.append(error.code)
        return 'tried'

    inner: Agent[None, str] = Agent(
        Scripted(calls('inner_note'), 'inner').model, tools=[Tool(inner_note)], capabilities=[PortableState()]
    )

    async def delegate() -> str:
        return (await inner.run('go')).output

    bench = Bench(calls('delegate'), 'done', tools=[Tool(delegate)], capabilities=[PortableState()])
    result = await bench.run('go')
    assert (seen, outcomes(result.state)) == (['run_not_active'], {'delegate': 'success: inner'})
    assert result.state.agent_context_state.entries == {}


async def test_thread_that_a_tool_runs_is_one_of_its_own() -> None:
    inner = AgentExecutable(Bench(calls('note'), 'inner', tools=[Tool(note)]).agent)

    async def delegate() -> str:
        result = await inner.run('go', bindings=RunBindings(), previous_state=thread().fork())
        assert result.state is not None
        return str(result.state.agent_context_state.entries['acme.note'].data)

    bench = Bench(calls('delegate'), 'done', tools=[Tool(delegate)])
    result = await bench.run('go')
    assert outcomes(result.state) == {'delegate': "success: {'text': 'kept'}"}
    assert result.state.agent_context_state.entries == {}


async def test_capabilities_of_the_bindings_are_added() -> None:
    started: list[str] = []

    class Watch(AbstractCapability[Any]):
        async def before_run(self, ctx: RunContext[Any]) -> None:
            started.append(HarnessContext.of(ctx).thread_id)

    for own in ([], [PortableState[Any]()]):
        result = await Bench('ok', capabilities=own).run('go', bindings=RunBindings(capabilities=[Watch()]))
        assert started.pop() == result.thread_id


async def test_agent_that_runs_while_another_is_started_is_not_taken_for_it() -> None:
    inner: Agent[None, str] = Agent(
        Scripted(calls('note')).model, tools=[Tool(note)], capabilities=[PortableState[Any]()]
    )

    class RunsAnother(FunctionToolset[Any]):
        async def __aenter__(self) -> Any:
            with pytest.raises(StateError):
                await inner.run('go')
            return await super().__aenter__()

    result = await Bench('ok', toolsets=[RunsAnother()]).run('go')
    assert (result.status, result.state.agent_context_state.entries) == ('completed', {})


async def test_nothing_is_added_per_run_where_nothing_has_to_be() -> None:
    given: list[dict[str, Any]] = []

    class Records(WrapperAgent[Any, Any]):
        @asynccontextmanager
        async def iter(self, *arguments: Any, **settings: Any) -> AsyncGenerator[Any]:
            given.append(settings)
            async with self.wrapped.iter(*arguments, **settings) as run:
                yield run

    for capabilities in ([PortableState[Any]()], []):
        executable = AgentExecutable(Records(Bench('ok', capabilities=capabilities).agent))
        assert (await executable.run('go', bindings=RunBindings())).status == 'completed'
    # Temporal workflows refuse both, even if they are empty.
    assert [settings['capabilities'] is None for settings in given] == [True, False]
    assert [settings['toolsets'] for settings in given] == [None, None]
