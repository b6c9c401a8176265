"""The code samples of the seed, with only the import root changed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import RunContext

from harness_temporal import AgentExecutable, HarnessContext, RunBindings
from tests.state.support import Bench, Step, call, outcomes, pending, response, returned, thread, user


class Records:
    """The outside service that the samples look things up in."""

    def __init__(self) -> None:
        self.read: list[str] = []


RECORDS = Records()


def read_record(record_id: str) -> str:
    RECORDS.read.append(record_id)
    return f'record {record_id}'


def search_records(text: str) -> str:
    return f'found {text}'


def build(*steps: Step, **settings: Any) -> tuple[AgentExecutable[Any, Any], Any]:
    bench = Bench(*steps, **settings)
    return bench.executable, lambda: RunBindings[Any](model=bench.model.model)


async def test_sample_continue_a_thread() -> None:
    executable, fresh_bindings = build('a plan', 'reviewed')

    from harness_temporal import HarnessState

    initial_state = HarnessState.new(thread_id='thr_productthread1')
    first = await executable.run(
        'Draft the plan',
        bindings=fresh_bindings(),
        previous_state=initial_state,
    )

    if first.state is None:
        raise RuntimeError('No continuation state is available')

    second = await executable.run(
        'Review it',
        bindings=fresh_bindings(),
        previous_state=first.state,
    )

    assert first.thread_id == second.thread_id
    assert first.run_id != second.run_id
    assert second.output == 'reviewed'


def test_sample_serialize_and_fork() -> None:
    state = thread(user(), response('hi'))

    from harness_temporal import HarnessState

    payload = state.model_dump_json()
    restored = HarnessState.model_validate_json(payload)

    assert restored == state

    branch_state = state.fork(thread_id='thr_productbranch1')

    assert branch_state.thread_id != state.thread_id
    assert branch_state.message_history == state.message_history


async def test_sample_export_while_streaming() -> None:
    executable, fresh_bindings = build('some work')
    checkpoint_candidate = None

    async with executable.stream('Work', bindings=fresh_bindings()) as stream:
        async for item in stream:
            assert item is not None
            checkpoint_candidate = await stream.export_state()

    assert checkpoint_candidate is not None
    assert len(checkpoint_candidate.message_history) == 1


async def test_sample_declare_retryable_tools_and_resume_with_a_policy() -> None:
    from pydantic_ai import Tool
    from pydantic_ai.capabilities import Capability

    from harness_temporal.tools import recovery_retryable

    @recovery_retryable
    def lookup_record(record_id: str) -> str:
        return read_record(record_id)

    catalog: Capability[Any] = Capability(
        id='acme.catalog',
        tools=[lookup_record, recovery_retryable(Tool(search_records, name='search'))],
    )

    executable, fresh_bindings = build('done', capabilities=[catalog])
    checkpoint = thread(user(), response(call('lookup_record', record_id='7'), call('search', text='x'), call('plain')))
    result = await executable.run(
        bindings=fresh_bindings(),
        previous_state=checkpoint,
        tool_recovery='declared',  # The default; use "never" to disable all replay.
    )

    assert RECORDS.read == ['7']
    assert outcomes(result.state) == {
        'lookup_record': 'success: record 7',
        'search': 'success: found x',
        'plain': 'unknown',
    }


async def test_sample_structured_suspension() -> None:
    executable, fresh_bindings = build([call('ask')], 'confirmed')

    from harness_temporal import DeferredToolResume

    first = await executable.run(
        'Ask for confirmation',
        bindings=fresh_bindings(),
    )

    if first.status != 'suspended' or first.state is None or first.deferred is None:
        raise RuntimeError('Expected a suspended run')

    results = first.deferred.build_results(approve_all=True)

    second = await executable.run(
        bindings=fresh_bindings(),
        previous_state=first.state,
        deferred_resume=DeferredToolResume(first.deferred, results),
    )

    assert (second.status, second.output) == ('completed', 'confirmed')


@pytest.mark.parametrize('incorporated', [False, True])
async def test_sample_recover_an_interrupted_resume(incorporated: bool) -> None:
    executable, fresh_bindings = build('done')
    given: Any = {'outside': 'given'}

    from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

    from harness_temporal import DeferredToolResume

    kept = DeferredToolResume(
        DeferredToolRequests(calls=[ToolCallPart('outside', {}, tool_call_id='outside')]),
        DeferredToolResults(calls=given),
    )
    checkpoint = pending('outside')
    if incorporated:
        checkpoint = thread(*checkpoint.message_history, returned('outside', content='given'))
    accepted = kept.remaining(checkpoint.message_history)

    # Loaded from the Host's checkpoint and accepted-input storage.
    recovery_input = (
        DeferredToolResume(accepted.requests, accepted.results, recovery=True) if accepted is not None else None
    )
    result = await executable.run(
        bindings=fresh_bindings(),
        previous_state=checkpoint,
        deferred_resume=recovery_input,
        tool_recovery='declared',
    )

    assert (accepted is None) == incorporated
    assert (result.status, outcomes(result.state)) == ('completed', {'outside': 'success: given'})


async def test_sample_capability_state() -> None:
    from pydantic import BaseModel

    class CounterState(BaseModel):
        value: int

    async def count(ctx: RunContext[Any]) -> str:
        context = HarnessContext.of(ctx)

        current = await context.state.read(
            'acme.counter',
            CounterState,
            version='1',
        )
        await context.state.write(
            'acme.counter',
            CounterState(value=(current.value if current else 0) + 1),
            version='1',
        )
        return 'counted'

    from pydantic_ai.tools import Tool

    executable, fresh_bindings = build([call('count'), call('count', 'again')], tools=[Tool(count)])
    result = await executable.run('go', bindings=fresh_bindings())
    assert result.state is not None
    assert result.state.agent_context_state.entries['acme.counter'].data == {'value': 2}
