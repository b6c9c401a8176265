"""Suspension and `DeferredToolResume` (cases 80 to 102)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import Agent
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn, UserPromptPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import ExternalToolset

from harness_temporal.errors import DeferredResumeError
from harness_temporal.state import AgentExecutable, DeferredToolResume, RunBindings
from tests.state.support import (
    Bench,
    asked,
    call,
    calls,
    kinds,
    outcomes,
    pending,
    response,
    returned,
    thread,
    user,
)

POLICIES = ['never', 'declared', 'always']


def batch(
    *,
    approvals: dict[str, Any] | None = None,
    external: dict[str, Any] | None = None,
    recovery: bool = False,
    **settings: Any,
) -> DeferredToolResume:
    """Answers to calls whose id is their tool's name."""
    requests = DeferredToolRequests(
        approvals=[call(name) for name in approvals or {}], calls=[call(name) for name in external or {}]
    )
    results = DeferredToolResults(approvals=approvals or {}, calls=external or {}, **settings)
    return DeferredToolResume(requests, results, recovery=recovery)


async def refusal(bench: Bench, state: Any, resume: Any, **arguments: Any) -> str:
    """The code of the error, having made sure that nothing ran."""
    with pytest.raises(DeferredResumeError) as caught:
        await bench.run(previous_state=state, deferred_resume=resume, **arguments)
    assert (bench.ran, bench.model.requests) == ([], 0)
    return caught.value.code


# --- suspension ---


async def test_case_80_all_kinds_of_waiting_calls_are_in_their_category() -> None:
    bench = Bench(calls('ask', 'outside', 'safe', 'safe_ask', 'defers'))
    result = await bench.run('go')
    assert asked(result) == {'approvals': ['ask', 'safe_ask'], 'calls': ['defers', 'outside']}
    assert result.deferred.metadata == {'safe_ask': {'why': 'dear'}, 'defers': {'job': 1}}
    assert outcomes(result.state) == {'safe': 'success: safe 1'}
    assert (result.output, result.error, result.suspend_reason) == (None, None, 'deferred')


@pytest.mark.parametrize('prompt', [None, 'and then'])
@pytest.mark.parametrize('policy', POLICIES)
async def test_case_81_answers_are_applied_under_every_policy(policy: str, prompt: str | None) -> None:
    bench = Bench(calls('ask', 'outside', 'safe', 'safe_ask', 'defers'), 'done')
    first = await bench.run('go')
    bench.ran.clear()
    results = first.deferred.build_results(approve_all=True, calls={'outside': {'a': [1]}, 'defers': None})
    second = await bench.run(
        prompt,
        previous_state=first.state,
        deferred_resume=DeferredToolResume(first.deferred, results),
        tool_recovery=policy,
    )
    assert (second.status, second.output, bench.model.requests) == ('completed', 'done', 2)
    assert sorted(bench.ran) == ['ask', 'safe_ask']
    assert outcomes(second.state) == {
        'safe': 'success: safe 1',
        'ask': 'success: ask 1',
        'outside': 'success: {"a":[1]}',
        'safe_ask': 'success: asked',
        'defers': 'success: null',
    }
    assert bench.tools.approved == [False, True]
    last = bench.model.sent[-1][-1].parts[-1]
    assert isinstance(last, UserPromptPart) == (prompt is not None)


async def test_case_81_metadata_reaches_the_approved_tool() -> None:
    bench = Bench('done')
    resume = batch(approvals={'ask': True}, metadata={'ask': {'who': 'me'}})
    await bench.run(previous_state=pending('ask'), deferred_resume=resume)
    assert (bench.tools.metadata, bench.tools.approved) == ([{'who': 'me'}], [True])


async def test_case_81_answers_to_a_model_of_a_named_provider() -> None:
    # Pydantic AI looks for its responses in the history, which those of `FunctionModel` do not show.
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    async def pay() -> str:
        return 'paid'

    executable = AgentExecutable(agent)
    asking = await executable.run('go', bindings=RunBindings())
    assert asking.deferred is not None
    results = DeferredToolResults(approvals={item.tool_call_id: True for item in asking.deferred.approvals})
    for recovery, told in ((False, 'paid'), (True, 'interrupted')):
        resume = DeferredToolResume(asking.deferred, results, recovery=recovery)
        ended = await executable.run(bindings=RunBindings(), previous_state=asking.state, deferred_resume=resume)
        assert ended.status == 'completed', ended.exception
        assert told in str(ended.output)
        [response, *_] = [message for message in ended.all_messages() if isinstance(message, ModelResponse)]
        assert response.provider_name is not None


async def test_case_81_answers_may_be_given_to_a_fork() -> None:
    bench = Bench('done')
    branch = pending('ask').fork()
    result = await bench.run(previous_state=branch, deferred_resume=batch(approvals={'ask': True}))
    assert (result.status, bench.ran, result.thread_id) == ('completed', ['ask'], branch.thread_id)


@pytest.mark.parametrize(
    ('decision', 'told'),
    [
        (False, 'denied: The tool call was denied.'),
        (ToolDenied('not today'), 'denied: not today'),
        (True, 'success: ask 1'),
        (ToolApproved(), 'success: ask 1'),
    ],
)
async def test_case_82_decision_is_recorded_as_what_it_is(decision: Any, told: str) -> None:
    bench = Bench('done')
    result = await bench.run(previous_state=pending('ask'), deferred_resume=batch(approvals={'ask': decision}))
    assert (outcomes(result.state), bench.ran) == ({'ask': told}, ['ask'] if told.startswith('success') else [])


async def test_case_83_override_arguments_are_run_and_the_asked_ones_stay() -> None:
    bench = Bench('done')
    state = thread(user(), response(call('ask', x=1)))
    requests = DeferredToolRequests(approvals=[call('ask', x=1)])
    results = DeferredToolResults(approvals={'ask': ToolApproved(override_args={'x': 42})})
    result = await bench.run(previous_state=state, deferred_resume=DeferredToolResume(requests, results))
    assert bench.tools.arguments == [42]
    kept: Any = result.state.message_history[1].parts[0]
    assert kept.args == {'x': 1}
    bench = Bench('done')
    wrong = DeferredToolResults(approvals={'ask': ToolApproved(override_args={'x': 'no'})})
    result = await bench.run(previous_state=state, deferred_resume=DeferredToolResume(requests, wrong))
    assert outcomes(result.state)['ask'].startswith('retried: ')
    assert bench.ran == []


@pytest.mark.parametrize(
    ('value', 'told'),
    [
        (None, 'success: null'),
        (False, 'success: false'),
        ({'a': 1}, 'success: {"a":1}'),
        (ToolReturn('rich', content='more'), 'success: rich'),
        (ToolFailed('it broke'), 'failed: it broke'),
        (ModelRetry('once more'), 'retried: once more'),
    ],
)
async def test_case_84_external_results(value: Any, told: str) -> None:
    bench = Bench('done')
    result = await bench.run(previous_state=pending('outside'), deferred_resume=batch(external={'outside': value}))
    found = outcomes(result.state)['outside']
    assert found == told or (told.startswith('retried') and found.startswith(told))


# --- what is refused ---


async def test_case_85_answers_need_a_state() -> None:
    assert await refusal(Bench(), None, batch(approvals={'ask': True})) == 'deferred_state_required'


def unlike(requests: dict[str, list[str]], results: dict[str, dict[str, Any]]) -> DeferredToolResume:
    asked_for = DeferredToolRequests(**{key: [call(name) for name in names] for key, names in requests.items()})
    return DeferredToolResume(asked_for, DeferredToolResults(**results))


@pytest.mark.parametrize(
    'resume',
    [
        pytest.param(unlike({'approvals': ['ask'], 'calls': ['outside']}, {'approvals': {'ask': True}}), id='missing'),
        pytest.param(unlike({'approvals': ['ask']}, {'approvals': {'ask': True, 'more': True}}), id='extra'),
        pytest.param(unlike({'approvals': ['ask']}, {'approvals': {'ask': True}, 'calls': {'x': 1}}), id='other'),
        pytest.param(
            unlike({'approvals': ['ask'], 'calls': ['outside']}, {'approvals': {'outside': True}, 'calls': {'ask': 1}}),
            id='swapped',
        ),
        pytest.param(unlike({'approvals': ['ask']}, {'approvals': {'ask': True}}), id='another-call-is-open-too'),
    ],
)
async def test_case_85_results_cover_the_requests_exactly(resume: DeferredToolResume) -> None:
    assert await refusal(Bench(), pending('ask', 'outside'), resume) == 'deferred_results_incomplete'


@pytest.mark.parametrize('value', ['yes', 1, 0, None, {'kind': 'tool-approved'}])
async def test_case_86_approval_is_a_bool_or_a_native_decision(value: Any) -> None:
    resume = batch(approvals={'ask': value})
    assert await refusal(Bench(), pending('ask'), resume) == 'deferred_approval_invalid'


@pytest.mark.parametrize(
    ('made', 'after', 'code'),
    [
        pytest.param(call('ask', x=2), [], 'deferred_request_mismatch', id='arguments'),
        pytest.param(call('plain', 'ask'), [], 'deferred_request_mismatch', id='name'),
        pytest.param(call('ask', 'other'), [], 'deferred_request_missing', id='id'),
        pytest.param(call('ask'), [returned('ask')], 'deferred_request_completed', id='answered'),
        pytest.param(call('ask'), [returned('ask'), response('ok')], 'deferred_request_missing', id='went-on'),
    ],
)
async def test_case_87_request_must_be_in_the_history_as_it_was_asked(made: Any, after: Any, code: str) -> None:
    state = thread(user(), response(made), *after)
    with pytest.raises(DeferredResumeError) as caught:
        await Bench().run(previous_state=state, deferred_resume=batch(approvals={'ask': True}))
    assert (caught.value.code, caught.value.details) == (code, {'tool_call_id': 'ask'})


async def test_case_87_formatting_of_arguments_does_not_matter() -> None:
    bench = Bench('done')
    state = thread(user(), response(ToolCallPart('ask', '{ "x" : 1 }', tool_call_id='ask')))
    requests = DeferredToolRequests(approvals=[ToolCallPart('ask', {'x': 1}, tool_call_id='ask')])
    resume = DeferredToolResume(requests, DeferredToolResults(approvals={'ask': True}))
    assert (await bench.run(previous_state=state, deferred_resume=resume)).status == 'completed'


def many(count: int) -> DeferredToolResume:
    ids = [f'id{index}' for index in range(count)]
    requests = DeferredToolRequests(approvals=[call('ask', call_id) for call_id in ids])
    return DeferredToolResume(requests, DeferredToolResults(approvals=dict.fromkeys(ids, True)))


@pytest.mark.parametrize(
    ('resume', 'code'),
    [
        (unlike({}, {}), 'deferred_requests_empty'),
        (unlike({'approvals': ['ask', 'ask']}, {'approvals': {'ask': True}}), 'deferred_request_duplicate'),
        (
            unlike({'approvals': ['ask'], 'calls': ['ask']}, {'approvals': {'ask': True}, 'calls': {'ask': 1}}),
            'deferred_request_category_overlap',
        ),
        (many(129), 'deferred_requests_too_large'),
        (unlike({'approvals': [' ']}, {'approvals': {' ': True}}), 'deferred_request_invalid'),
        (
            DeferredToolResume(
                DeferredToolRequests(approvals=[ToolCallPart('ask', {'x': float('nan')}, tool_call_id='ask')]),
                DeferredToolResults(approvals={'ask': True}),
            ),
            'deferred_request_invalid',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)
async def test_case_88_requests_are_checked_first(resume: DeferredToolResume, code: str) -> None:
    assert await refusal(Bench(), pending('ask'), resume) == code


async def test_case_88_largest_batch_is_taken() -> None:
    bench = Bench('done')
    resume = many(128)
    state = thread(user(), response(*resume.requests.approvals))
    assert (await bench.run(previous_state=state, deferred_resume=resume)).status == 'completed'
    assert len(bench.ran) == 128


async def test_case_88_repeated_id_in_the_history_is_refused() -> None:
    state = thread(user(), response(call('ask'), call('plain', 'ask')))
    assert await refusal(Bench(), state, batch(approvals={'ask': True})) == 'deferred_request_duplicate'


@pytest.mark.parametrize(
    'metadata', [{'who': {}}, {'ask': {'a': float('nan')}}, {'ask': {'a': 'x' * 70_000}}, {'ask': {'a': object}}]
)
@pytest.mark.parametrize('where', ['requests', 'results'])
async def test_case_89_metadata_is_json_of_known_calls(metadata: Any, where: str) -> None:
    requests = DeferredToolRequests(approvals=[call('ask')], metadata=metadata if where == 'requests' else {})
    results = DeferredToolResults(approvals={'ask': True}, metadata=metadata if where == 'results' else {})
    resume = DeferredToolResume(requests, results)
    assert await refusal(Bench(), pending('ask'), resume) == 'deferred_metadata_invalid'


def now_external() -> ExternalToolset[Any]:
    return ExternalToolset([ToolDefinition(name='ask', parameters_json_schema={'type': 'object'})])


@pytest.mark.parametrize(
    ('bench', 'resume'),
    [
        pytest.param(Bench(without=['ask']), batch(approvals={'ask': True}), id='gone'),
        pytest.param(Bench(without=['ask']), batch(approvals={'ask': False}), id='gone-denied'),
        pytest.param(Bench(without=['ask'], toolsets=[now_external()]), batch(approvals={'ask': True}), id='external'),
        pytest.param(Bench(toolsets=[]), batch(external={'outside': 1}), id='external-gone'),
    ],
)
async def test_case_90_tool_that_changed_is_refused_before_the_model_is_asked(bench: Bench, resume: Any) -> None:
    [made] = [*resume.requests.calls, *resume.requests.approvals]
    code = await refusal(bench, thread(user(), response(made)), resume)
    assert code == 'deferred_surface_mismatch'


async def test_case_90_failure_of_an_external_tool_that_is_gone_is_recorded() -> None:
    bench = Bench('done', toolsets=[])
    resume = batch(external={'outside': ToolFailed('the service is gone')})
    result = await bench.run(previous_state=pending('outside'), deferred_resume=resume)
    assert outcomes(result.state) == {'outside': 'failed: the service is gone'}


async def test_case_91_approval_does_not_bypass_the_present_policy() -> None:
    hooks = Hooks[Any]()

    @hooks.on.before_tool_execute
    async def check(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        raise ToolFailed('no longer allowed')

    bench = Bench('done', capabilities=[hooks])
    result = await bench.run(previous_state=pending('ask'), deferred_resume=batch(approvals={'ask': True}))
    assert (outcomes(result.state), bench.ran) == ({'ask': 'failed: no longer allowed'}, [])


async def test_case_92_tool_may_ask_again() -> None:
    def insists(ctx: RunContext[Any]) -> str:
        raise ApprovalRequired(metadata={'second': ctx.tool_call_approved})

    bench = Bench(tools=[Tool(insists)])
    result = await bench.run(previous_state=pending('insists'), deferred_resume=batch(approvals={'insists': True}))
    assert asked(result)['approvals'] == ['insists']
    assert result.deferred.metadata == {'insists': {'second': True}}


async def test_case_93_answers_that_were_used_are_refused_later() -> None:
    bench = Bench('done')
    resume = batch(approvals={'ask': True})
    second = await bench.run(previous_state=pending('ask'), deferred_resume=resume)
    again = Bench()
    assert await refusal(again, second.state, resume) == 'deferred_request_missing'


async def test_case_94_fresh_answers_do_not_depend_on_the_policy() -> None:
    for policy in POLICIES:
        bench = Bench('done')
        resume = batch(approvals={'ask': True})
        await bench.run(previous_state=pending('ask'), deferred_resume=resume, tool_recovery=policy)
        assert bench.ran == ['ask']


# --- remaining() and recovery ---


def test_case_95_remaining_is_what_the_history_has_not_taken_in() -> None:
    resume = batch(
        approvals={'ask': True}, external={'outside': 1}, metadata={'ask': {'a': 1}, 'outside': {'b': 2}}, recovery=True
    )
    made = [user(), response(*calls('ask', 'outside'))]
    assert resume.remaining(made) == resume
    left = resume.remaining([*made, returned('outside')])
    assert left == batch(approvals={'ask': True}, metadata={'ask': {'a': 1}}, recovery=True)
    assert resume.remaining([*made, returned('outside', 'ask')]) is None
    assert resume.remaining([*made, response('went on')]) is None
    assert resume.results.calls == {'outside': 1}, 'the batch itself stays whole'
    with pytest.raises(DeferredResumeError) as caught:
        resume.remaining([user()])
    assert caught.value.code == 'deferred_request_missing'
    incomplete = unlike({'approvals': ['ask']}, {})
    with pytest.raises(DeferredResumeError) as caught:
        incomplete.remaining(made)
    assert caught.value.code == 'deferred_results_incomplete'


@pytest.mark.parametrize(
    ('policy', 'unknown', 'suspended'),
    [
        ('never', ['ask', 'safe_approval'], []),
        ('declared', ['ask'], ['safe_approval']),
        ('always', [], ['ask', 'safe_approval']),
    ],
)
async def test_case_96_approval_is_no_permission_to_run_again(
    policy: str, unknown: list[str], suspended: list[str]
) -> None:
    bench = Bench('done')
    resume = batch(approvals={'ask': True, 'safe_approval': True}, external={'outside': 42}, recovery=True)
    state = pending('ask', 'safe_approval', 'outside')
    result = await bench.run(previous_state=state, deferred_resume=resume, tool_recovery=policy)
    assert outcomes(result.state) == {'outside': 'success: 42', **dict.fromkeys(unknown, 'unknown')}
    if suspended:
        assert asked(result)['approvals'] == suspended
    assert (result.status, bench.ran) == ('suspended' if suspended else 'completed', [])
    assert bench.model.requests == (0 if suspended else 1)


@pytest.mark.parametrize('names', [['outside', 'plain', 'safe_outside'], ['plain', 'safe_outside', 'outside']])
async def test_case_96_results_are_in_the_order_of_the_calls(names: list[str]) -> None:
    resume = batch(external={'outside': 1}, recovery=True)
    result = await Bench('done').run(previous_state=pending(*names), deferred_resume=resume, tool_recovery='never')
    assert list(outcomes(result.state)) == names


@pytest.mark.parametrize('policy', POLICIES)
async def test_case_97_denials_are_applied_under_every_policy(policy: str) -> None:
    bench = Bench('done')
    resume = batch(approvals={'ask': False, 'safe_approval': ToolDenied('no')}, recovery=True)
    state = pending('ask', 'safe_approval')
    result = await bench.run(previous_state=state, deferred_resume=resume, tool_recovery=policy)
    assert outcomes(result.state) == {'ask': 'denied: The tool call was denied.', 'safe_approval': 'denied: no'}
    assert (result.status, bench.ran) == ('completed', [])


async def test_case_98_result_in_the_history_stands_against_the_batch() -> None:
    bench = Bench('done')
    state = thread(user(), response(*calls('outside', 'safe_approval')), returned('outside'))
    resume = batch(approvals={'safe_approval': False}, external={'outside': 'NEW'}, recovery=True)
    result = await bench.run(previous_state=state, deferred_resume=resume)
    assert outcomes(result.state)['outside'] == 'success: OLD'
    assert outcomes(result.state)['safe_approval'].startswith('denied')


@pytest.mark.parametrize('superseded', [False, True])
async def test_case_99_batch_that_is_taken_in_leaves_a_plain_run(superseded: bool) -> None:
    bench = Bench('done')
    made = [user(), response(*calls('outside')), returned('outside')]
    state = thread(*made, response(*calls('safe'))) if superseded else thread(*made)
    resume = batch(external={'outside': 'NEW'}, recovery=True)
    result = await bench.run(previous_state=state, deferred_resume=resume)
    assert (result.status, bench.ran) == ('completed', ['safe'] if superseded else [])
    assert outcomes(result.state)['outside'] == 'success: OLD'


async def test_case_100_tool_of_a_retained_approval_must_be_there() -> None:
    resume = batch(approvals={'ask': True}, recovery=True)
    for policy in POLICIES:
        bench = Bench(without=['ask'])
        assert await refusal(bench, pending('ask'), resume, tool_recovery=policy) == 'deferred_surface_mismatch'


@pytest.mark.parametrize('streaming', [False, True])
async def test_case_101_interrupted_resume_keeps_what_is_not_applied_open(streaming: bool) -> None:
    def explodes(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        raise RuntimeError('no')

    bench = Bench(calls('outside', 'explodes'), tools=[Tool(explodes)])
    first = await bench.run('go')
    results = first.deferred.build_results(approve_all=True, calls={'outside': 42})
    resume = DeferredToolResume(first.deferred, results)
    if streaming:
        async with bench.stream(previous_state=first.state, deferred_resume=resume) as stream:
            assert stream.pending_deferred_input == resume
            async for _ in stream:
                pass
        second, left = stream.result, stream.pending_deferred_input
    else:
        second = await bench.run(previous_state=first.state, deferred_resume=resume)
        left = resume.remaining(second.state.message_history)
    assert (second.status, outcomes(second.state)) == ('failed', {'outside': 'success: 42'})
    assert left is not None
    assert ([item.tool_call_id for item in left.requests.approvals], left.requests.calls) == (['explodes'], [])
    again = Bench(tools=[Tool(explodes)])
    assert await refusal(again, second.state, resume) == 'deferred_request_completed'
    recovery = DeferredToolResume(left.requests, left.results, recovery=True)
    third = await Bench('done', tools=[Tool(explodes)]).run(previous_state=second.state, deferred_resume=recovery)
    assert outcomes(third.state) == {'outside': 'success: 42', 'explodes': 'unknown'}


async def test_case_101_call_that_is_left_open_is_not_marked_as_given_up() -> None:
    async def explodes() -> str:
        raise RuntimeError('no')

    bench = Bench(tools=[Tool(explodes, requires_approval=True)])
    resume = batch(approvals={'explodes': True})
    result = await bench.run(previous_state=pending('explodes'), deferred_resume=resume)
    assert kinds(result.state.message_history) == ['request(user-prompt:go)', 'response(call:explodes)']
    assert resume.remaining(result.state.message_history) == resume


async def test_case_102_run_that_nobody_answers_hides_and_denies() -> None:
    bench = Bench(calls('safe_ask', 'defers', 'safe'), 'done')
    result = await bench.run('go', bindings=RunBindings(deferred_tools_supported=False))
    assert (result.status, bench.model.requests) == ('completed', 2)
    found = outcomes(result.state)
    assert found['safe_ask'].startswith('denied: ')
    assert found['defers'].startswith('failed: ')
    assert found['safe'] == 'success: safe 1'
    assert not {'ask', 'safe_approval', 'outside', 'safe_outside'} & {*bench.model.offered[0]}
    assert {'plain', 'safe', 'safe_ask'} <= {*bench.model.offered[0]}


@pytest.mark.parametrize('policy', POLICIES)
async def test_suspended_state_without_answers_is_an_ordinary_recovery(policy: str) -> None:
    bench = Bench(calls('ask'), 'done')
    first = await bench.run('go')
    second = await bench.run(previous_state=first.state, tool_recovery=policy)
    assert bench.ran == []
    if policy == 'always':
        assert asked(second)['approvals'] == ['ask']
    else:
        assert outcomes(second.state) == {'ask': 'unknown'}


# --- the value itself ---


def test_resume_is_a_copy_and_frozen() -> None:
    requests, results = DeferredToolRequests(approvals=[call('ask')]), DeferredToolResults(approvals={'ask': True})
    resume = DeferredToolResume(requests, results)
    requests.approvals.clear()
    results.approvals['ask'] = False
    assert (len(resume.requests.approvals), resume.results.approvals) == (1, {'ask': True})
    with pytest.raises(AttributeError):
        resume.recovery = True  # type: ignore[misc]


@pytest.mark.parametrize('given', [(None, None), ({}, {}), (DeferredToolRequests(), {})])
def test_resume_takes_native_objects_only(given: Any) -> None:
    with pytest.raises(DeferredResumeError) as caught:
        DeferredToolResume(*given)
    assert caught.value.code == 'deferred_resume_invalid'


def test_resume_of_what_cannot_be_copied_is_refused() -> None:
    with pytest.raises(DeferredResumeError) as caught:
        batch(external={'outside': (item for item in [1])})
    assert caught.value.code == 'deferred_resume_invalid'


async def test_something_else_than_a_resume_is_refused() -> None:
    assert await refusal(Bench(), pending('ask'), DeferredToolRequests()) == 'deferred_resume_invalid'


def test_resume_survives_json() -> None:
    adapter = TypeAdapter(DeferredToolResume)
    resume = batch(
        approvals={'ask': ToolApproved(override_args={'x': 1}), 'safe_ask': ToolDenied('no'), 'other': True},
        external={'outside': ToolFailed('no'), 'defers': ModelRetry('again'), 'plain': {'a': None}},
        metadata={'ask': {'a': 1}},
        recovery=True,
    )
    restored = adapter.validate_json(adapter.dump_json(resume))
    assert restored == resume
    assert type(restored.results.calls['outside']) is ToolFailed


@pytest.mark.parametrize('value', [object(), float('nan'), {'a': [float('inf')]}, {1, 2, object()}])
async def test_result_that_could_not_be_stored_is_refused_before_the_model_is_asked(value: Any) -> None:
    resume = batch(external={'outside': value})
    assert await refusal(Bench(), pending('outside'), resume) == 'deferred_results_invalid'


async def test_override_that_is_no_json_is_refused() -> None:
    resume = batch(approvals={'ask': ToolApproved(override_args={'x': float('nan')})})
    assert await refusal(Bench(), pending('ask'), resume) == 'deferred_results_invalid'


# --- field cases ---


async def test_field_case_18_answer_in_the_wrong_category_is_no_answer() -> None:
    requests = DeferredToolRequests(approvals=[call('ask')], calls=[call('outside')])
    results = DeferredToolResults(calls={'ask': 'x'}, approvals={'outside': True})
    resume = DeferredToolResume(requests, results)
    assert await refusal(Bench(), pending('ask', 'outside'), resume) == 'deferred_results_incomplete'


@pytest.mark.parametrize('decision', [None, 'false', 'true', 1, 0])
def test_field_case_19_decision_that_was_decoded_from_json_is_a_bool(decision: Any) -> None:
    document = json.loads(TypeAdapter(DeferredToolResume).dump_json(batch(approvals={'ask': True})))
    document['results']['approvals']['ask'] = decision
    with pytest.raises(ValidationError):
        TypeAdapter(DeferredToolResume).validate_python(document)


async def test_field_case_20_resuming_without_answers_is_no_approval() -> None:
    first = await Bench(calls('ask')).run('go')
    for policy in POLICIES:
        bench = Bench('done')
        await bench.run(previous_state=first.state, tool_recovery=policy)
        assert bench.ran == []


async def test_field_case_21_mixed_batch_runs_each_call_once() -> None:
    bench = Bench(calls('plain', 'ask'), 'done', 'later')
    first = await bench.run('go')
    assert bench.ran == ['plain']
    approval = ToolApproved(override_args={'x': 5})
    results = first.deferred.build_results(approvals={'ask': approval})
    resume = DeferredToolResume(first.deferred, results)
    second = await bench.run(previous_state=first.state, deferred_resume=resume)
    assert (bench.ran, bench.tools.arguments) == (['plain', 'ask'], [5])
    # What was asked stays in the history, what was approved with the host, what was run with the tool.
    assert first.deferred.approvals[0].args == {}
    for late in (resume, DeferredToolResume(resume.requests, resume.results)):
        with pytest.raises(DeferredResumeError):
            await bench.run(previous_state=second.state, deferred_resume=late)
    assert bench.ran == ['plain', 'ask']


async def test_field_case_15_repeated_id_binds_no_approval() -> None:
    state = thread(user(), response(call('ask', 'dup'), call('plain', 'dup')))
    requests = DeferredToolRequests(approvals=[call('ask', 'dup')])
    resume = DeferredToolResume(requests, DeferredToolResults(approvals={'dup': True}))
    assert await refusal(Bench(), state, resume) == 'deferred_request_duplicate'
    made = await Bench([call('ask', 'dup'), call('plain', 'dup')]).run('go')
    assert (made.status, made.error.code, made.deferred) == ('failed', 'tool_call_id_repeated', None)


async def test_returns_of_a_deferred_turn_are_all_in_the_history_once() -> None:
    bench = Bench(calls('plain', 'ask'), 'done')
    first = await bench.run('go')
    results = first.deferred.build_results(approve_all=True)
    second = await bench.run(
        'and', previous_state=first.state, deferred_resume=DeferredToolResume(first.deferred, results)
    )
    log = [*first.new_messages(), *second.new_messages()]
    assert kinds(log) == kinds(second.all_messages())
