"""Public reports of people who do this job, as far as they are about state (5, 9 to 13, 16, 26, 54)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import RunContext, Tool

from harness_temporal.errors import RunError, StateEnvelopeError
from harness_temporal.state import DeferredToolResume, HarnessContext, HarnessState
from harness_temporal.tools import recovery_retryable
from tests.state.decision_table import recorded
from tests.state.support import Bench, asked, call, calls, outcomes, pending, response, returned, thread, user

POLICIES = ['never', 'declared', 'always']


@pytest.mark.parametrize('policy', POLICIES)
@pytest.mark.parametrize('prompt', [None, 'new input'])
async def test_field_case_5_dangling_call_obeys_the_policy_with_and_without_input(
    policy: str, prompt: str | None
) -> None:
    bench = Bench('done')
    result = await bench.run(prompt, previous_state=pending('plain'), tool_recovery=policy)
    assert result.status == 'completed'
    assert bench.ran == (['plain'] if policy == 'always' else [])


@pytest.mark.parametrize('policy', POLICIES)
async def test_field_case_9_malformed_arguments_stay_byte_for_byte(policy: str) -> None:
    made = ToolCallPart('safe', '{"x": ', tool_call_id='safe')
    state = HarnessState.model_validate_json(thread(user(), response(made)).model_dump_json())
    bench = Bench('done')
    result = await bench.run(previous_state=state, tool_recovery=policy)
    kept: Any = HarnessState.model_validate_json(result.state.model_dump_json()).message_history[1].parts[0]
    assert (kept.args, bench.ran) == ('{"x": ', [])


async def test_field_case_10_equal_call_ids_of_threads_and_steps_are_told_apart() -> None:
    one, other = pending('safe'), pending('safe').fork()
    first = await Bench('done').run(previous_state=one, tool_recovery='never')
    second = await Bench('done').run(previous_state=other)
    assert (outcomes(first.state), outcomes(second.state)) == ({'safe': 'unknown'}, {'safe': 'success: safe 1'})
    # The id comes again in a later step: the earlier answer is not the later call's.
    again = thread(user(), response(call('safe')), returned('safe'), response(call('safe')))
    bench = Bench('done')
    await bench.run(previous_state=again)
    assert bench.ran == ['safe']


async def test_field_case_11_empty_ids_are_handled_or_refused() -> None:
    one = thread(user(), response(call('safe', '')), returned('safe#', content='x'), response(call('safe', '')))
    bench = Bench('done')
    assert (await bench.run(previous_state=one)).status == 'completed'
    assert bench.ran == ['safe']
    two = thread(user(), response(call('safe', ''), call('plain', '')))
    with pytest.raises(RunError) as caught:
        await Bench().run(previous_state=two)
    assert caught.value.code == 'tool_call_id_repeated'


@pytest.mark.parametrize(
    ('policy', 'declared', 'effects'),
    [
        ('never', True, 1),
        ('never', False, 1),
        ('declared', True, 2),
        ('declared', False, 1),
        ('always', True, 2),
        ('always', False, 2),
    ],
)
async def test_field_case_12_effect_is_repeated_only_where_allowed(policy: str, declared: bool, effects: int) -> None:
    done: list[int] = []

    def charge() -> str:
        done.append(1)
        return 'charged'

    tool = recovery_retryable(charge) if declared else Tool(charge)
    # The process died after the effect and before its return was kept.
    first = Bench(calls('charge'), tools=[tool])
    async with first.stream('go') as stream:
        async for _ in stream:
            checkpoint = await stream.export_state()
            if any(isinstance(message, ModelResponse) for message in checkpoint.message_history):
                break
    charge()
    result = await Bench('done', tools=[tool]).run(previous_state=checkpoint, tool_recovery=policy)
    assert len(done) == effects
    assert outcomes(result.state)['charge'] == ('success: charged' if effects == 2 else 'unknown')


@pytest.mark.parametrize('policy', POLICIES)
async def test_field_case_13_ledger_and_history_may_be_behind_each_other(policy: str) -> None:
    behind = Bench('done')
    first = await behind.run(
        previous_state=pending('safe'), tool_recovery=policy, recorded_outcomes={'safe': recorded('OLD')}
    )
    ahead = Bench('done')
    second = await ahead.run(
        previous_state=thread(user(), response(call('safe')), returned('safe')), tool_recovery=policy
    )
    assert outcomes(first.state) == outcomes(second.state) == {'safe': 'success: OLD'}
    both = Bench('done')
    third = await both.run(
        previous_state=thread(user(), response(call('safe')), returned('safe')),
        tool_recovery=policy,
        recorded_outcomes={'safe': recorded('NEW'), 'other': recorded(1)},
    )
    assert outcomes(third.state) == {'safe': 'success: OLD'}
    assert behind.ran == ahead.ran == both.ran == []


@pytest.mark.parametrize(
    ('signal', 'told'),
    [
        (ModelRetry('again'), 'retried: again'),
        (ToolFailed('no'), 'failed: no'),
        (ApprovalRequired(metadata={'a': 1}), 'approvals'),
        (CallDeferred(metadata={'a': 1}), 'calls'),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else '',
)
async def test_field_case_16_recorded_control_flow_is_what_it_was(signal: Exception, told: str) -> None:
    bench = Bench('done')
    result = await bench.run(
        previous_state=pending('plain', 'safe'), recorded_outcomes={'plain': recorded(signal)}, tool_recovery='never'
    )
    assert bench.ran == []
    if told in ('approvals', 'calls'):
        assert asked(result)[told] == ['plain']
        assert result.deferred.metadata == {'plain': {'a': 1}}
        assert outcomes(result.state) == {'safe': 'unknown'}
    else:
        assert outcomes(result.state)['plain'].startswith(told)


async def test_recorded_request_is_answered_like_any_other() -> None:
    bench = Bench('done')
    first = await bench.run(previous_state=pending('plain'), recorded_outcomes={'plain': recorded(ApprovalRequired())})
    resume = DeferredToolResume(first.deferred, first.deferred.build_results(approve_all=True))
    second = await bench.run(
        previous_state=first.state,
        deferred_resume=resume,
        recorded_outcomes={'plain': recorded(ApprovalRequired())},
    )
    assert (bench.ran, outcomes(second.state)) == (['plain'], {'plain': 'success: plain 1'})


async def test_call_that_ran_under_its_approval_is_not_run_again() -> None:
    bench = Bench(calls('ask'), 'done')
    first = await bench.run('go')
    resume = DeferredToolResume(first.deferred, first.deferred.build_results(approve_all=True))
    second = await bench.run(
        previous_state=first.state, deferred_resume=resume, recorded_outcomes={'ask': recorded('charged')}
    )
    assert (bench.ran, outcomes(second.state)) == ([], {'ask': 'success: charged'})
    denied = DeferredToolResume(first.deferred, first.deferred.build_results(approvals={'ask': False}))
    third = await Bench('done').run(
        previous_state=first.state, deferred_resume=denied, recorded_outcomes={'ask': recorded('charged')}
    )
    assert outcomes(third.state) == {'ask': 'denied: The tool call was denied.'}


async def test_recorded_request_does_not_hold_for_a_later_call_with_its_id() -> None:
    def refuse(ctx: RunContext[Any]) -> str:
        return 'ran'

    bench = Bench([call('refuse', 'gone')], 'done', tools=[Tool(refuse)])
    state = thread(user(), response(call('refuse'), call('gone')))
    outcome = {'gone': recorded(ApprovalRequired()), 'refuse': recorded('before')}
    result = await bench.run(previous_state=state, recorded_outcomes=outcome)
    assert result.status == 'completed'
    last = [part for part in result.state.message_history[-2].parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_call_id, part.content) for part in last] == [('gone', 'ran')]


def test_field_case_26_messages_of_older_releases_load() -> None:
    document = json.loads(thread(user(), response('x')).model_dump_json())
    old = document['message_history'][1]
    del old['provider_response_id'], old['state']
    old.update(vendor_id='abc', usage={'request_tokens': 1, 'response_tokens': 2, 'total_tokens': 3, 'details': None})
    loaded: Any = HarnessState.model_validate(document).message_history[1]
    assert (loaded.provider_response_id, loaded.usage.input_tokens, loaded.state) == ('abc', 1, 'complete')


def test_field_case_26_unknown_version_is_a_typed_error_and_unknown_namespaces_stay() -> None:
    document = json.loads(thread(user()).model_dump_json())
    document['agent_context_state']['entries']['later'] = {'version': '99', 'data': {'a': [1]}}
    assert HarnessState.model_validate(document).agent_context_state.entries['later'].version == '99'
    with pytest.raises(StateEnvelopeError) as caught:
        HarnessState.model_validate({**document, 'schema_version': '99'})
    assert caught.value.code == 'state_version_unsupported'


async def test_field_case_54_tool_knows_its_run_and_thread() -> None:
    seen: list[Any] = []

    async def look(ctx: RunContext[dict[str, int]]) -> str:
        seen.append((ctx.run_id, ctx.conversation_id, HarnessContext.of(ctx).thread_id, ctx.tool_call_approved))
        return 'seen'

    bench = Bench(calls('look'), 'done', tools=[Tool(look)])
    result = await bench.run('go')
    assert seen == [(result.run_id, result.thread_id, result.thread_id, False)]
