"""The declaration of retryable tools as recovery reads it (cases 73 to 79)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.capabilities import SetToolMetadata
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from harness_temporal.tools import RECOVERY_RETRY_SAFE_METADATA_KEY, recovery_retryable
from tests.state.support import MARKED, Bench, outcomes, pending, response, thread, user


def look_up(x: int = 1) -> str:
    """Look it up."""
    return f'found {x}'


async def recovered(bench: Bench, *tools: str, **arguments: Any) -> dict[str, str]:
    result = await bench.run(previous_state=pending(*tools), **arguments)
    return {name: 'unknown' if told == 'unknown' else 'ran' for name, told in outcomes(result.state).items()}


async def test_case_73_decorator_gives_a_native_tool_around_the_same_function() -> None:
    tool = recovery_retryable(look_up)
    assert (type(tool), tool.function, tool.name, tool.description) == (Tool, look_up, 'look_up', 'Look it up.')
    assert await recovered(Bench('done', tools=[tool]), 'look_up') == {'look_up': 'ran'}


async def test_case_74_existing_tool_is_copied_and_left_as_it_is() -> None:
    tool = Tool(look_up, name='find', max_retries=4, metadata={'team': 'a'})
    copy = recovery_retryable(tool)
    assert (copy.name, copy.max_retries, copy.metadata) == ('find', 4, {'team': 'a', **MARKED})
    assert tool.metadata == {'team': 'a'}
    assert await recovered(Bench('done', tools=[tool]), 'find') == {'find': 'unknown'}
    assert await recovered(Bench('done', tools=[copy]), 'find') == {'find': 'ran'}


@pytest.mark.parametrize('value', [1, 'true', None, False, 1.0, [True]])
async def test_case_75_only_true_declares(value: Any) -> None:
    tool = Tool(look_up, metadata={RECOVERY_RETRY_SAFE_METADATA_KEY: value})
    assert await recovered(Bench('done', tools=[tool]), 'look_up') == {'look_up': 'unknown'}


async def test_case_76_set_tool_metadata_declares_and_takes_back() -> None:
    declares: SetToolMetadata[Any] = SetToolMetadata(**MARKED)
    assert await recovered(Bench('done', capabilities=[declares]), 'plain') == {'plain': 'ran'}
    takes_back: SetToolMetadata[Any] = SetToolMetadata(**{RECOVERY_RETRY_SAFE_METADATA_KEY: False})
    assert await recovered(Bench('done', capabilities=[takes_back]), 'safe') == {'safe': 'unknown'}
    only: SetToolMetadata[Any] = SetToolMetadata(tools=['other'], **MARKED)
    bench = Bench('done', capabilities=[only])
    assert await recovered(bench, 'plain', 'other') == {'plain': 'unknown', 'other': 'ran'}


async def test_case_77_dynamic_toolset_declares_while_it_is_built() -> None:
    built: list[str] = []

    def build(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        built.append('built')
        return FunctionToolset([recovery_retryable(Tool(look_up, name='yes')), Tool(look_up, name='no')])

    bench = Bench('done')
    bench.agent.toolset(build)
    assert await recovered(bench, 'yes', 'no') == {'yes': 'ran', 'no': 'unknown'}
    assert built


async def test_case_78_declaration_in_a_saved_message_means_nothing() -> None:
    made = ToolCallPart('plain', {}, tool_call_id='plain', provider_details=dict(MARKED))
    bench = Bench('done')
    state = thread(user(), response(made, provider_details=dict(MARKED)))
    result = await bench.run(previous_state=state)
    assert (outcomes(result.state), bench.ran) == ({'plain': 'unknown'}, [])


async def test_case_79_preparing_a_tool_can_hide_it_or_declare_it() -> None:
    async def hide(ctx: RunContext[Any], tool_def: ToolDefinition) -> None:
        return None

    async def declare(ctx: RunContext[Any], tool_def: ToolDefinition) -> ToolDefinition:
        return replace(tool_def, metadata=dict(MARKED))

    hidden = Bench('done', tools=[Tool(look_up, prepare=hide)])
    assert await recovered(hidden, 'look_up', tool_recovery='always') == {'look_up': 'unknown'}
    declared = Bench('done', tools=[Tool(look_up, prepare=declare)])
    assert await recovered(declared, 'look_up') == {'look_up': 'ran'}
