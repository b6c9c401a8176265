"""Capability namespaces and environments (cases 103 to 110)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.tools import RunContext, Tool

from harness_temporal.errors import StateError
from harness_temporal.state import (
    AgentContextState,
    CapabilityState,
    EnvironmentState,
    HarnessContext,
    HarnessState,
    RunBindings,
    StateWrite,
)
from harness_temporal.step_persistence.outcomes import ended_with_result, result, with_state_writes
from tests.state.support import THREAD, Bench, call, calls, outcomes, response, thread, user


class Counter(BaseModel):
    value: int


class Loose(BaseModel):
    number: float = 0
    anything: Any = None


def empty() -> CapabilityState:
    return CapabilityState(AgentContextState())


async def count(ctx: RunContext[Any]) -> str:
    state = HarnessContext.of(ctx).state
    current = await state.read('acme.counter', Counter, version='1')
    await state.write('acme.counter', Counter(value=(current.value if current else 0) + 1), version='1')
    return 'counted'


async def test_case_103_counter_goes_on_from_run_to_run() -> None:
    bench = Bench(calls('count'), 'one', calls('count'), 'two', tools=[Tool(count)])
    first = await bench.run('go')
    second = await bench.run('again', previous_state=first.state)
    values = [result.state.agent_context_state.entries['acme.counter'].data for result in (first, second)]
    assert values == [{'value': 1}, {'value': 2}]
    assert second.state.agent_context_state.entries['acme.counter'].version == '1'


async def test_case_103_capability_reads_and_writes_too() -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    class Counts(AbstractCapability[Any]):
        async def before_run(self, ctx: RunContext[Any]) -> None:
            await count(ctx)
            seen.append((HarnessContext.of(ctx).thread_id, ctx.conversation_id, ctx.run_id))

    first = await Bench('ok', capabilities=[Counts()]).run('go', previous_state=thread())
    second = await Bench('ok', capabilities=[Counts()]).run('on', previous_state=first.state)
    assert second.state.agent_context_state.entries['acme.counter'].data == {'value': 2}
    assert seen == [(THREAD, THREAD, first.run_id), (THREAD, THREAD, second.run_id)]


async def test_case_103_there_is_no_state_outside_of_an_executable() -> None:
    bench = Bench(calls('count'), tools=[Tool(count)])
    with pytest.raises(StateError) as caught:
        await bench.agent.run('go')
    assert caught.value.code == 'run_not_active'


async def test_case_104_unknown_namespace_is_kept_as_it_is() -> None:
    data = {'deep': [{'b': 1, 'a': [None, 1.5, 'x']}], 'credit': 10**30}
    state = thread(user(), agent_context_state={'entries': {'other.one': {'version': '77', 'data': data}}})
    bench = Bench(calls('count'), 'done', tools=[Tool(count)])
    result = await bench.run('go', previous_state=state)
    for kept in (result.state, result.state.fork(), HarnessState.model_validate_json(result.state.model_dump_json())):
        entry = kept.agent_context_state.entries['other.one']
        assert (entry.version, entry.data) == ('77', data)
        assert kept.agent_context_state.entries['acme.counter'].data == {'value': 1}


async def test_case_105_each_mistake_has_its_code() -> None:
    state = empty()
    await state.write('acme.counter', Counter(value=1), version='1')
    with pytest.raises(StateError) as version:
        await state.read('acme.counter', Counter, version='2')
    assert version.value.code == 'capability_state_version_unsupported'
    assert version.value.details == {
        'capability_id': 'acme.counter',
        'expected_version': '2',
        'actual_version': '1',
    }
    assert "'1'" in str(version.value)
    assert "'2'" in str(version.value)

    class Other(BaseModel):
        name: str

    with pytest.raises(StateError) as payload:
        await state.read('acme.counter', Other, version='1')
    assert (payload.value.code, payload.value.details) == (
        'capability_state_invalid',
        {'capability_id': 'acme.counter'},
    )
    for namespace, number, code in [
        (' ', '1', 'capability_state_id_invalid'),
        ('acme', ' ', 'capability_state_version_invalid'),
    ]:
        with pytest.raises(StateError) as reading:
            await state.read(namespace, Counter, version=number)
        with pytest.raises(StateError) as writing:
            await state.write(namespace, Counter(value=2), version=number)
        assert (reading.value.code, writing.value.code) == (code, code)
    assert await state.read('acme.other', Counter, version='1') is None


@pytest.mark.parametrize(
    'value',
    [
        Loose(number=float('nan')),
        Loose(anything=float('inf')),
        Loose(anything={'a': [(float('nan'),)]}),
        Loose(anything=object()),
        Loose(anything=b'\xff'),
        Loose(anything='\ud800'),
        Loose(anything='x' * 1024 * 1024),
        {'value': 1},
        None,
    ],
    ids=['nan', 'untyped-inf', 'nested-nan', 'object', 'bytes', 'surrogate', 'too-large', 'dict', 'none'],
)
async def test_case_106_what_is_not_json_changes_nothing(value: Any) -> None:
    state = empty()
    await state.write('acme', Loose(number=1), version='1')
    before = state.snapshot()
    with pytest.raises(StateError) as caught:
        await state.write('acme', value, version='1')
    assert caught.value.code == 'capability_state_invalid'
    assert state.snapshot() is before
    assert len(state.writes) == 1


async def test_case_106_deep_value_is_refused_and_not_a_crash() -> None:
    nested: Any = 1
    for _ in range(150):
        nested = [nested]
    state = empty()
    await state.write('acme', Loose(anything=nested), version='1')
    for _ in range(100):
        nested = [nested]
    with pytest.raises(StateError):
        await state.write('acme', Loose(anything=nested), version='1')


async def test_case_106_equal_write_is_no_change() -> None:
    state = empty()
    await state.write('acme', Loose(anything={'b': 1, 'a': 2}), version='1')
    before = state.snapshot()
    await state.write('acme', Loose(anything={'a': 2, 'b': 1}), version='1')
    assert state.snapshot() is before
    await state.write('acme', Loose(anything={'a': 2, 'b': 1}), version='2')
    assert state.snapshot() is not before
    await state.write('acme', Loose(anything={'a': 2.0, 'b': 1}), version='2')
    assert len(state.writes) == 3


async def test_case_107_values_are_copied_in_and_out() -> None:
    state = empty()
    value = Loose(anything=[1])
    await state.write('acme', value, version='1')
    value.anything.append(2)
    read = await state.read('acme', Loose, version='1')
    assert read is not None
    assert read.anything == [1]
    read.anything.append(3)
    taken = state.snapshot()
    await state.write('acme', Loose(anything=[5]), version='1')
    assert taken.entries['acme'].data['anything'] == [1]
    again = await state.read('acme', Loose, version='1')
    assert again is not None
    assert again.anything == [5]


async def test_case_107_namespaces_are_isolated() -> None:
    state = empty()
    await state.write('a', Counter(value=1), version='1')
    await state.write('b', Counter(value=2), version='1')
    await state.write('a', Counter(value=3), version='1')
    entries = state.snapshot().entries
    assert {key: entry.data['value'] for key, entry in entries.items()} == {'a': 3, 'b': 2}


async def test_case_108_write_before_a_crash_is_in_the_candidate() -> None:
    async def writes_and_crashes(ctx: RunContext[Any]) -> str:
        await count(ctx)
        raise RuntimeError('no')

    bench = Bench(calls('writes_and_crashes'), tools=[Tool(writes_and_crashes)])
    result = await bench.run('go')
    assert result.status == 'failed'
    assert result.state.agent_context_state.entries['acme.counter'].data == {'value': 1}
    assert outcomes(result.state) == {'writes_and_crashes': 'unknown'}


@dataclass
class Shell:
    """A mounted environment."""

    state: EnvironmentState
    provider_key: str = 'local'

    def environment_state(self) -> EnvironmentState:
        return self.state


def shell(state: Any, provider_key: str = 'local') -> EnvironmentState:
    return EnvironmentState(provider_key=provider_key, state_version='1.0', state=state)


async def test_case_109_mounted_environments_are_exported_and_others_are_not_forwarded() -> None:
    bindings = RunBindings[Any](environments={'box': Shell(shell({'cwd': '/'}))})
    first = await Bench('ok').run('go', bindings=bindings)
    assert first.state.environment_states == {'box': shell({'cwd': '/'})}
    async with Bench('ok').stream('go', bindings=bindings) as stream:
        assert list((await stream.export_state()).environment_states) == ['box']
    second = await Bench('ok').run('on', previous_state=first.state)
    assert second.state.environment_states == {}
    wrong = RunBindings[Any](environments={'box': Shell(shell(1, 'other'))})
    with pytest.raises(StateError) as caught:
        await Bench('ok').run('go', bindings=wrong)
    assert (caught.value.code, caught.value.details) == ('state_invalid', {'mount': 'box'})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ('value', 'fits'),
    [
        pytest.param(nested(32), True, id='depth-32'),
        pytest.param(nested(33), False, id='depth-33'),
        pytest.param([1] * 9_999, True, id='10000-values'),
        pytest.param([1] * 10_000, False, id='10001-values'),
        pytest.param('x' * (MEBIBYTE - 2), True, id='1-MiB'),
        pytest.param('x' * (MEBIBYTE - 1), False, id='1-MiB-and-1'),
        pytest.param('é' * (MEBIBYTE // 2), False, id='bytes-not-characters'),
        pytest.param(float('nan'), False, id='nan'),
        pytest.param({1: 'x'}, False, id='key'),
        pytest.param((1,), False, id='tuple'),
    ],
)
def test_case_110_environment_state_is_bounded(value: Any, fits: bool) -> None:
    if fits:
        assert shell(value).state == value
        assert thread(environment_states={'box': shell(value)}).environment_states['box'].state == value
    else:
        with pytest.raises(ValueError, match='EnvironmentState'):
            shell(value)


@pytest.mark.parametrize(
    'fields', [('Local', '1'), ('1a', '1'), ('a' * 65, '1'), ('local', ''), ('local', '-1'), ('a', '1\n')]
)
def test_case_110_environment_names_are_strict(fields: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match='EnvironmentState'):
        EnvironmentState(provider_key=fields[0], state_version=fields[1], state=None)


async def test_writes_are_an_ordered_list_that_can_be_applied_elsewhere() -> None:
    here, there = empty(), empty()
    await there.write('a', Counter(value=1), version='1')
    await there.write('b', Loose(anything=[1]), version='2')
    await there.write('a', Counter(value=2), version='1')
    assert there.writes == (
        StateWrite('a', '1', '{"value":1}'),
        StateWrite('b', '2', '{"anything":[1],"number":0.0}'),
        StateWrite('a', '1', '{"value":2}'),
    )
    here.apply(there.writes)
    assert here.snapshot() == there.snapshot()
    assert here.writes == there.writes
    for wrong in (StateWrite('a', '1', 'NaN'), StateWrite('a', '1', '{'), StateWrite(' ', '1', '1')):
        with pytest.raises(StateError):
            here.apply([wrong])
    assert here.snapshot() == there.snapshot()


async def test_state_is_the_same_where_a_tool_call_takes_it() -> None:
    here = empty()
    await here.write('a', Loose(anything=[10**30, 'é', None]), version='7')
    there = CapabilityState.load(here.dump())
    assert there.snapshot() == here.snapshot()
    assert there.writes == ()
    await there.write('a', Loose(anything=[10**30, 'é', None]), version='7')
    assert there.writes == ()
    await there.write('a', Loose(), version='8')
    here.apply(map(StateWrite.load, [write.dump() for write in there.writes]))
    assert here.snapshot() == there.snapshot()


async def test_writes_of_recorded_calls_are_in_the_state_before_the_run_goes_on() -> None:
    history = [user(), response(call('count', call_id='c1'), call('count', call_id='c2'), call('count', call_id='c3'))]
    state = thread(*history)
    recorded = {
        call_id: ended_with_result(
            with_state_writes(result('tool_return', result='counted'), [StateWrite('acme.counter', '1', data).dump()])
        ).value
        for call_id, data in [('c2', '{"value":7}'), ('c1', '{"value":6}'), ('c9', '{"value":9}')]
    }
    bench = Bench('done', tools=[Tool(count)])
    ended = await bench.run(None, previous_state=state, recorded_outcomes=recorded, tool_recovery='always')
    # Those of the open calls, in the order of the calls; then the third call ran.
    assert ended.state.agent_context_state.entries['acme.counter'].data == {'value': 8}
