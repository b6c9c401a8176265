"""How runs end (cases 18 to 34)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.models.function import DeltaThinkingPart
from pydantic_ai.tools import DeferredToolRequests, Tool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import UsageLimits

from harness_temporal.errors import InputError, RunCleanupError, RunError, StateError
from harness_temporal.state import HarnessState, RunBindings, RunFailure, RunResult
from tests.state.support import THREAD, Bench, call, calls, kinds, outcomes, thread, user

BROKEN = RuntimeError('the connection broke')


async def streamed(bench: Bench, prompt: str | None = 'go', **arguments: Any) -> Any:
    async with bench.stream(prompt, **arguments) as stream:
        async for _ in stream:
            pass
    return stream.result


async def test_case_18_runs_of_a_thread_share_its_id_and_nothing_else() -> None:
    bench = Bench('one', 'two')
    first = await bench.run('a', previous_state=thread())
    second = await bench.run('b', previous_state=first.state)
    assert first.thread_id == second.thread_id == THREAD
    assert first.run_id != second.run_id
    assert (first.usage.requests, second.usage.requests) == (1, 1)
    assert kinds(first.new_messages()) == ['request(user-prompt:a)', 'response(text:one)']
    assert kinds(second.new_messages()) == ['request(user-prompt:b)', 'response(text:two)']
    assert kinds(second.all_messages()) == kinds([*first.all_messages(), *second.new_messages()])
    assert (second.status, second.output, second.output_or_raise()) == ('completed', 'two', 'two')


async def test_case_18_run_without_a_state_begins_a_thread() -> None:
    first, second = await Bench().run('a'), await Bench().run('a')
    assert first.thread_id != second.thread_id
    assert first.state.thread_id == first.thread_id


GOOD: dict[str, dict[str, Any]] = {
    'completed': {'state': thread()},
    'suspended': {'state': thread(), 'deferred': DeferredToolRequests(), 'suspend_reason': 'deferred'},
    'failed': {'error': RunFailure('x', 'x')},
    'cancelled': {},
}


@pytest.mark.parametrize('status', GOOD)
def test_case_19_result_with_its_own_fields_is_legal(status: Any) -> None:
    result = RunResult[Any](thread_id=THREAD, run_id='r', status=status, **GOOD[status])
    assert result.output is None


@pytest.mark.parametrize(
    ('status', 'changes'),
    [
        ('completed', {'state': None}),
        ('completed', {'error': RunFailure('x', 'x')}),
        ('completed', {'deferred': DeferredToolRequests()}),
        ('completed', {'suspend_reason': 'deferred'}),
        ('completed', {'state': HarnessState.new(thread_id='thr_other')}),
        ('suspended', {'state': None}),
        ('suspended', {'deferred': None}),
        ('suspended', {'suspend_reason': None}),
        ('suspended', {'output': 'x'}),
        ('suspended', {'error': RunFailure('x', 'x')}),
        ('failed', {'error': None}),
        ('failed', {'output': 'x'}),
        ('failed', {'deferred': DeferredToolRequests()}),
        ('failed', {'suspend_reason': 'deferred'}),
        ('cancelled', {'output': 'x'}),
        ('cancelled', {'error': RunFailure('x', 'x')}),
        ('cancelled', {'deferred': DeferredToolRequests()}),
        ('other', {}),
    ],
)
def test_case_19_result_with_other_fields_is_refused(status: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='other fields'):
        RunResult[Any](thread_id=THREAD, run_id='r', status=status, **{**GOOD.get(status, {}), **changes})


@pytest.mark.parametrize('fields', [('', 'x', {}), ('x', '', {}), ('x', 'x', {'a': object()})])
def test_case_19_failure_is_json_and_says_something(fields: Any) -> None:
    with pytest.raises(ValueError, match=r'JSON|code and a message'):
        RunFailure(*fields)


@pytest.mark.parametrize('streaming', [False, True])
async def test_case_20_model_error_before_any_part_keeps_the_prompt(streaming: bool) -> None:
    error = ModelHTTPError(503, 'some-model', body='secret')
    bench = Bench(error)
    result = await (streamed(bench) if streaming else bench.run('go'))
    assert (result.status, result.error.code, result.error.retry_hint) == (
        'failed',
        'agent_run_failed',
        'dependency_change',
    )
    assert result.error.details == {'exception_type': 'ModelHTTPError', 'status_code': 503}
    assert 'secret' not in str(result.error)
    assert result.exception is error
    assert kinds(result.state.message_history) == ['request(user-prompt:go)']


@pytest.mark.parametrize(
    ('deltas', 'expected'),
    [
        pytest.param(['hel', 'lo', BROKEN], ['response!interrupted(text:hello)'], id='case-21-text'),
        pytest.param([DeltaThinkingPart(content='hmm'), BROKEN], [], id='case-22-unfinished-thinking'),
        pytest.param(
            [DeltaThinkingPart(content='hmm'), 'hel', BROKEN],
            ['response!interrupted(thinking:hmm,text:hel)'],
            id='case-23-finished-thinking',
        ),
        pytest.param(
            [DeltaThinkingPart(content='one'), 'hel', DeltaThinkingPart(content='two'), BROKEN],
            ['response!interrupted(thinking:one,text:hel)'],
            id='case-23-later-thinking',
        ),
        pytest.param(['hi', call('safe'), BROKEN], ['response!interrupted(text:hi)'], id='case-24-last-call'),
        pytest.param(
            ['hi', call('safe'), call('plain'), BROKEN],
            ['response!interrupted(text:hi,call:safe)', 'request!interrupted(safe=unknown)'],
            id='case-25-first-of-two-calls',
        ),
    ],
)
async def test_stream_that_breaks_keeps_what_was_whole(deltas: Any, expected: list[str]) -> None:
    bench = Bench(deltas, 'go on')
    result = await streamed(bench)
    assert (result.status, result.exception) == ('failed', BROKEN)
    assert kinds(result.state.message_history) == ['request(user-prompt:go)', *expected]
    assert bench.ran == []
    again = await bench.run('again', previous_state=result.state)
    assert (again.status, again.output) == ('completed', 'go on')


async def test_case_26_return_and_partial_text_are_kept_when_the_second_request_breaks() -> None:
    result = await streamed(Bench(calls('plain'), ['par', 'tial', BROKEN]))
    assert kinds(result.state.message_history)[1:] == [
        'response(call:plain)',
        'request(plain=success)',
        'response!interrupted(text:partial)',
    ]


async def test_case_27_request_limit_keeps_the_returns_that_are_there() -> None:
    bench = Bench(calls('plain'))
    result = await bench.run('go', bindings=RunBindings(usage_limits=UsageLimits(request_limit=1)))
    assert (result.status, result.error.code) == ('failed', 'usage_limit_exceeded')
    assert (result.error.details, result.error.retry_hint) == ({}, 'dependency_change')
    assert outcomes(result.state) == {'plain': 'success: plain 1'}


async def test_case_28_tool_call_limit_lets_none_of_the_batch_run() -> None:
    bench = Bench(calls('plain', 'safe'))
    result = await bench.run('go', bindings=RunBindings(usage_limits=UsageLimits(tool_calls_limit=1)))
    assert (result.error.code, bench.ran) == ('usage_limit_exceeded', [])
    assert kinds(result.state.message_history)[-1] == 'request!interrupted(plain=unknown,safe=unknown)'


@pytest.mark.parametrize('streaming', [False, True])
async def test_case_29_tool_that_raises_fails_the_run_and_keeps_its_sibling(streaming: bool) -> None:
    bench = Bench([call('plain'), call('crash')])
    result = await (streamed(bench) if streaming else bench.run('go'))
    assert (result.status, result.error.details) == ('failed', {'exception_type': 'RuntimeError'})
    assert str(result.exception) == 'no'
    assert outcomes(result.state) == {'plain': 'success: plain 1', 'crash': 'unknown'}
    assert kinds(result.state.message_history)[-1].startswith('request!interrupted')


class BadEnd(FunctionToolset[Any]):
    """A toolset that cannot be closed."""

    async def __aexit__(self, *args: Any) -> bool | None:
        raise OSError('cannot close')


@pytest.mark.parametrize(
    ('step', 'status'), [('ok', 'completed'), (BROKEN, 'failed'), (calls('ask'), 'suspended')], ids=str
)
async def test_case_30_clean_up_that_fails_gives_the_outcome_as_uncertain(step: Any, status: str) -> None:
    bench = Bench(step, toolsets=[BadEnd()])
    with pytest.raises(RunCleanupError) as caught:
        async with bench.stream('go') as stream:
            async for _ in stream:
                pass
    error = caught.value
    assert (error.code, error.retry_hint, error.details) == ('run_cleanup_failed', 'new_run', {'cause_count': 1})
    assert [type(cause) for cause in error.causes] == [OSError]
    assert 'cannot close' not in str(error)
    assert (error.outcome.status, stream.result, stream.outcome) == (status, None, error.outcome)
    assert await stream.export_state() == error.outcome.state


async def test_case_30_hook_that_raises_after_the_run_gives_the_outcome_too() -> None:
    class Fails(AbstractCapability[Any]):
        async def after_run(self, ctx: Any, *, result: Any) -> Any:
            raise LookupError('late')

    with pytest.raises(RunCleanupError) as caught:
        await Bench('ok', capabilities=[Fails()]).run('go')
    assert (caught.value.outcome.status, caught.value.outcome.output) == ('completed', 'ok')


async def test_case_31_clean_up_that_fails_after_a_crash_has_the_crash_as_its_cause() -> None:
    bench = Bench(calls('crash'), toolsets=[BadEnd()])
    with pytest.raises(RunCleanupError) as caught:
        await bench.run('go')
    assert str(caught.value.__cause__) == 'no'
    assert (caught.value.outcome.status, caught.value.outcome.exception) == ('failed', caught.value.__cause__)


async def test_case_32_exhausted_retries_close_the_last_bad_call() -> None:
    bad = [call('plain', 'one', x='no'), call('plain', 'two', x='no')]
    result = await Bench([bad[0]], [bad[1]]).run('go')
    assert (result.status, result.error.details['exception_type']) == ('failed', 'UnexpectedModelBehavior')
    assert outcomes(result.state)['two'] == 'unknown'
    assert outcomes(result.state)['one'].startswith('retried')


@pytest.mark.parametrize(
    ('prompt', 'code'), [('', 'input_empty'), ([], 'input_empty'), (3, 'input_invalid'), (b'x', 'input_invalid')]
)
async def test_case_33_prompt_that_is_none_is_refused(prompt: Any, code: str) -> None:
    bench = Bench()
    with pytest.raises(InputError) as caught:
        await bench.run(prompt, previous_state=thread(user()))
    assert caught.value.code == code
    with pytest.raises(InputError):
        bench.stream(prompt)
    assert bench.model.requests == 0


async def test_case_33_nothing_to_go_on_from_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        await Bench().run(previous_state=thread())
    assert caught.value.code == 'input_missing'


async def test_previous_state_of_another_type_is_refused() -> None:
    with pytest.raises(RunError) as caught:
        await Bench().run('x', previous_state={'thread_id': THREAD})
    assert caught.value.code == 'state_invalid'


async def test_case_34_raise_for_status_tells_how_the_run_ended() -> None:
    failed = await Bench(BROKEN).run('go')
    suspended = await Bench(calls('ask')).run('go')
    cancelled = RunResult[Any](thread_id=THREAD, run_id='r', status='cancelled')
    told: list[Any] = []
    for result in (failed, suspended, cancelled):
        with pytest.raises(RunError) as caught:
            result.output_or_raise()
        told.append((caught.value.code, caught.value.retry_hint, caught.value.__cause__))
    assert told == [
        ('agent_run_failed', 'dependency_change', BROKEN),
        ('run_suspended', 'new_run', None),
        ('run_cancelled', 'new_run', None),
    ]
    (await Bench('ok').run('go')).raise_for_status()


async def test_error_before_the_run_began_is_raised() -> None:
    class BadStart(FunctionToolset[Any]):
        async def __aenter__(self) -> Any:
            raise OSError('cannot open')

    bench = Bench('ok', toolsets=[BadStart()])
    state = thread(user())
    async with bench.stream('go', previous_state=state) as stream:
        with pytest.raises(OSError, match='cannot open'):
            async for _ in stream:
                pass
    assert (stream.result, stream.outcome, bench.model.requests) == (None, None, 0)
    assert await stream.export_state() == state


@pytest.mark.parametrize('then', ['done', BROKEN], ids=['completes', 'fails'])
async def test_history_that_cannot_be_kept_does_not_hide_a_failure(then: Any) -> None:
    def measure() -> float:
        return float('nan')

    bench = Bench(calls('measure'), then, tools=[Tool(measure)])
    if then == 'done':
        with pytest.raises(StateError) as caught:
            await bench.run('go')
        assert caught.value.code == 'state_history_invalid'
    else:
        result = await bench.run('go')
        assert (result.status, result.state, result.exception) == ('failed', None, BROKEN)
        assert (result.all_messages(), result.new_messages()) == ([], [])


async def test_output_types_of_the_agent_stay() -> None:
    for output_type in (int, [int, str], [int, DeferredToolRequests]):
        bench = Bench([call('final_result', response=3)], output_type=output_type)
        result = await bench.run('go')
        assert (result.status, result.output) == ('completed', 3)


async def test_agent_with_output_validators_names_deferred_requests_itself() -> None:
    for output_type, raises in ((str, True), ([str, DeferredToolRequests], False)):
        bench = Bench(calls('ask'), output_type=output_type)
        bench.agent.output_validator(lambda output: output)
        if raises:
            with pytest.raises(UserError):
                await bench.run('go')
        else:
            assert (await bench.run('go')).status == 'suspended'
