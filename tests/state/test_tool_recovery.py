"""Recovery of restored calls (cases 44 to 72). What becomes of a single call is in `test_decision_table`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.output import ToolOutput
from pydantic_ai.tools import Tool

from harness_temporal.errors import ConfigurationError, RunError
from harness_temporal.state import DeferredToolResume, HarnessState, RunBindings
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
THREE = {'never': [], 'declared': ['safe'], 'always': ['plain', 'safe']}


def settled(policy: str) -> dict[str, str]:
    return {
        'plain': 'success: plain 1' if policy == 'always' else 'unknown',
        'safe': 'unknown' if policy == 'never' else 'success: safe 1',
        'missing': 'unknown',
    }


@pytest.mark.parametrize('streaming', [False, True], ids=['run', 'stream'])
@pytest.mark.parametrize('prompt', [None, 'new input'], ids=['', 'case-48-with-input'])
@pytest.mark.parametrize(
    'policy', [pytest.param(policy, id=f'case-{44 + index}-{policy}') for index, policy in enumerate(POLICIES)]
)
async def test_policy_decides_which_calls_run(policy: str, prompt: str | None, streaming: bool) -> None:
    bench = Bench('done')
    state = pending('plain', 'safe', 'missing')
    if streaming:
        async with bench.stream(prompt, previous_state=state, tool_recovery=policy) as stream:
            async for _ in stream:
                pass
        result = stream.result
    else:
        result = await bench.run(prompt, previous_state=state, tool_recovery=policy)
    assert sorted(bench.ran) == THREE[policy]
    assert outcomes(result.state) == settled(policy)
    assert (result.status, bench.model.requests) == ('completed', 1)
    sent = [part for message in bench.model.sent[0][2:] for part in message.parts]
    returns = [part.tool_call_id for part in sent if isinstance(part, ToolReturnPart)]
    assert sorted(returns) == ['missing', 'plain', 'safe']
    prompts = [part.content for part in sent if isinstance(part, UserPromptPart)]
    assert prompts == ([prompt] if prompt else [])
    if prompt:
        assert isinstance(sent[-1], UserPromptPart), 'the prompt follows the results'
    if policy != 'never':
        assert set(bench.tools.approved) == {False}


async def test_case_47_the_default_is_declared() -> None:
    default, declared = Bench(), Bench()
    first = await default.run(previous_state=pending('plain', 'safe'))
    second = await declared.run(previous_state=pending('plain', 'safe'), tool_recovery='declared')
    assert default.ran == declared.ran == ['safe']
    assert outcomes(first.state) == outcomes(second.state)


@pytest.mark.parametrize('policy', POLICIES)
@pytest.mark.parametrize('state', [pytest.param('complete', id='case-49'), pytest.param('interrupted', id='case-50')])
@pytest.mark.parametrize('prompt', [None, 'new input'])
async def test_recorded_returns_stay_and_only_the_others_are_handled(
    state: str, policy: str, prompt: str | None
) -> None:
    bench = Bench('done')
    history = thread(user(), response(*calls('plain', 'safe', 'other')), returned('plain', state=state))
    result = await bench.run(prompt, previous_state=history, tool_recovery=policy)
    found = outcomes(result.state)
    assert found['plain'] == 'success: OLD'
    assert sorted(found) == ['other', 'plain', 'safe']
    assert found['safe'] == settled(policy)['safe']
    assert 'plain' not in bench.ran
    made = [part.tool_call_id for part in result.state.message_history[1].parts if isinstance(part, ToolCallPart)]
    assert made == ['plain', 'safe', 'other']


@pytest.mark.parametrize('policy', POLICIES)
async def test_prompt_in_a_partial_request_stays(policy: str) -> None:
    bench = Bench('done')
    partial = ModelRequest(parts=[*returned('plain').parts, UserPromptPart('mind')], state='interrupted')
    history = thread(user(), response(*calls('plain', 'safe')), partial)
    result = await bench.run(previous_state=history, tool_recovery=policy)
    sent = [part for message in bench.model.sent[0] for part in message.parts]
    assert 'mind' in [part.content for part in sent if isinstance(part, UserPromptPart)]
    assert outcomes(result.state)['safe'] == settled(policy)['safe']


async def test_case_52_recorded_retry_is_not_run_again() -> None:
    bench = Bench('done')
    # As an older release of Pydantic AI wrote it.
    retry = {'part_kind': 'retry-prompt', 'content': 'bad', 'tool_name': 'safe', 'tool_call_id': 'safe'}
    document = json.loads(pending('safe', 'plain').model_dump_json())
    document['message_history'].append({'kind': 'request', 'parts': [retry]})
    history = HarnessState.model_validate(document)
    result = await bench.run(previous_state=history, tool_recovery='always')
    assert bench.ran == ['plain']
    assert outcomes(result.state)['safe'].startswith('retried')


async def test_case_53_unknown_result_of_one_run_is_not_reopened_by_the_next() -> None:
    first = await Bench('one').run(previous_state=pending('safe'), tool_recovery='never')
    assert outcomes(first.state) == {'safe': 'unknown'}
    bench = Bench('two')
    second = await bench.run('go on', previous_state=first.state, tool_recovery='always')
    assert (bench.ran, outcomes(second.state)) == ([], {'safe': 'unknown'})


async def test_case_54_interrupted_outcome_of_pydantic_ai_counts_as_recorded() -> None:
    bench = Bench('done')
    history = thread(user(), response(*calls('safe', 'plain')), returned('safe', outcome='interrupted'))
    await bench.run(previous_state=history, tool_recovery='always')
    assert bench.ran == ['plain']


@pytest.mark.parametrize('policy', POLICIES)
@pytest.mark.parametrize('prompt', [None, 'new input'])
async def test_case_55_interrupted_response_keeps_its_text_and_state(policy: str, prompt: str | None) -> None:
    bench = Bench('done')
    history = thread(user(), response('so ', call('safe'), state='interrupted'))
    result = await bench.run(prompt, previous_state=history, tool_recovery=policy)
    assert kinds(result.state.message_history)[1] == 'response!interrupted(text:so ,call:safe)'
    assert outcomes(result.state) == {'safe': settled(policy)['safe']}


@pytest.mark.parametrize(
    ('tool', 'policy', 'category'),
    [
        pytest.param('safe_approval', 'declared', 'approvals', id='case-56'),
        pytest.param('ask', 'always', 'approvals', id='case-57'),
        pytest.param('safe_outside', 'declared', 'calls', id='case-58-declared'),
        pytest.param('outside', 'always', 'calls', id='case-58-always'),
        pytest.param('safe_ask', 'declared', 'approvals', id='case-59'),
    ],
)
async def test_suspended_call_can_be_answered_and_then_runs(tool: str, policy: str, category: str) -> None:
    bench = Bench('done')
    first = await bench.run(previous_state=pending(tool), tool_recovery=policy)
    assert asked(first) == {'approvals': [], 'calls': [], category: [tool]}
    assert first.suspend_reason == 'deferred'
    assert bench.model.requests == 0
    results = first.deferred.build_results(approve_all=True, calls={tool: 'given'} if category == 'calls' else None)
    second = await bench.run(
        previous_state=first.state, deferred_resume=DeferredToolResume(first.deferred, results), tool_recovery='never'
    )
    assert (second.status, bench.model.requests) == ('completed', 1)
    assert outcomes(second.state)[tool].startswith('success')


async def test_case_60_siblings_are_settled_before_the_run_is_suspended() -> None:
    bench = Bench('done')
    state = pending('safe', 'safe_approval', 'plain', 'safe_outside')
    result = await bench.run(previous_state=state, tool_recovery='declared')
    assert asked(result) == {'approvals': ['safe_approval'], 'calls': ['safe_outside']}
    assert outcomes(result.state) == {'safe': 'success: safe 1', 'plain': 'unknown'}
    assert (bench.ran, bench.model.requests) == (['safe'], 0)


@pytest.mark.parametrize('arguments', [{'x': 'no'}, '{"x": ', {'y': []}], ids=['wrong', 'malformed', 'schema'])
async def test_case_61_arguments_are_validated_against_the_present_schema(arguments: Any) -> None:
    bench = Bench('done')
    made = ToolCallPart('safe', arguments if arguments != {'y': []} else {'x': []}, tool_call_id='safe')
    state = thread(user(), response(made))
    result = await bench.run(previous_state=state)
    assert outcomes(result.state)['safe'].startswith('retried: ')
    assert (bench.ran, bench.model.requests) == ([], 1)
    kept: Any = result.state.message_history[1].parts[0]
    assert kept.args == made.args


async def test_case_62_failing_and_retrying_tools_say_so_and_a_crash_fails_the_run() -> None:
    result = await Bench('done').run(previous_state=pending('fails', 'again'))
    found = outcomes(result.state)
    assert found['fails'] == 'failed: it failed'
    assert found['again'].startswith('retried: once more')
    bench = Bench('done')
    crashed = await bench.run(previous_state=pending('safe', 'plain', 'crash'))
    assert (crashed.status, str(crashed.exception)) == ('failed', 'no')
    assert outcomes(crashed.state) == {'plain': 'unknown', 'safe': 'success: safe 1', 'crash': 'unknown'}


@pytest.mark.parametrize('call_id', ['new', 'plain'], ids=['new-id', 'reused-id'])
async def test_case_63_calls_of_this_run_are_run_under_never(call_id: str) -> None:
    bench = Bench([call('plain', call_id)], 'done')
    result = await bench.run(previous_state=pending('plain'), tool_recovery='never')
    assert (result.status, bench.ran, bench.model.requests) == ('completed', ['plain'], 2)


class Answer(BaseModel):
    x: int


@pytest.mark.parametrize(
    ('policy', 'x', 'requests'), [('never', 1, 1), ('declared', 1, 0), ('always', 1, 0), ('declared', 'no', 1)]
)
async def test_case_64_output_call_is_processed_unless_nothing_may_run(policy: str, x: Any, requests: int) -> None:
    bench = Bench([call('final', 'second', x=2)], output_type=ToolOutput(Answer, name='final'))
    state = thread(user(), response(call('final', x=x), call('safe')))
    result = await bench.run(previous_state=state, tool_recovery=policy)
    assert (result.status, bench.model.requests) == ('completed', requests)
    assert result.output == Answer(x=2 if requests else 1)
    first = outcomes(result.state)['final']
    assert first.split(':')[0] == ('unknown' if policy == 'never' else 'retried' if x == 'no' else 'success')
    assert bench.ran == ([] if policy == 'never' else ['safe'])


async def test_case_65_input_is_not_used_when_a_restored_call_ends_the_run() -> None:
    bench = Bench(output_type=ToolOutput(Answer, name='final'))
    state = thread(user(), response(call('final', x=1)))
    result = await bench.run('new input', previous_state=state)
    assert (result.output, bench.model.requests) == (Answer(x=1), 0)
    assert 'new input' not in str(kinds(result.state.message_history))


async def test_case_65b_input_is_not_used_when_the_run_is_suspended() -> None:
    bench = Bench('done')
    first = await bench.run('new input', previous_state=pending('safe_approval', 'safe'))
    assert asked(first)['approvals'] == ['safe_approval']
    assert outcomes(first.state) == {'safe': 'success: safe 1'}
    results = first.deferred.build_results(approve_all=True)
    second = await bench.run(previous_state=first.state, deferred_resume=DeferredToolResume(first.deferred, results))
    assert second.status == 'completed'
    assert 'new input' not in first.state.model_dump_json() + second.state.model_dump_json()


async def test_case_66_repeated_ids_are_closed_by_never() -> None:
    bench = Bench('done')
    state = thread(user(), response(call('safe', 'dup'), call('plain', 'dup')))
    result = await bench.run(previous_state=state, tool_recovery='never')
    assert (result.status, bench.ran, bench.model.requests) == ('completed', [], 1)


@pytest.mark.parametrize('policy', ['declared', 'always'])
@pytest.mark.parametrize('answered', [False, True])
async def test_case_66_repeated_ids_are_refused_where_a_call_could_run(policy: str, answered: bool) -> None:
    bench = Bench('done')
    tail = [returned('other')] if answered else []
    state = thread(user(), response(call('safe', 'dup'), call('plain', 'dup'), call('other')), *tail)
    with pytest.raises(RunError) as caught:
        await bench.run(previous_state=state, tool_recovery=policy)
    assert caught.value.code == 'tool_call_id_repeated'
    assert (bench.ran, bench.model.requests) == ([], 0)


@pytest.mark.parametrize('policy', POLICIES)
async def test_case_67_unanswered_call_of_an_earlier_response_is_not_recovered(policy: str) -> None:
    bench = Bench('done')
    state = thread(user(), response(call('safe')), user('never mind'), response('fine'))
    result = await bench.run('go on', previous_state=state, tool_recovery=policy)
    assert (result.status, bench.ran) == ('completed', [])


@pytest.mark.parametrize('policy', POLICIES)
async def test_case_68_response_that_its_provider_suspended_goes_on_there(policy: str) -> None:
    continued: list[list[str]] = []

    def respond(messages: Any, info: AgentInfo) -> ModelResponse:
        continued.append(kinds(messages))
        return ModelResponse(parts=[TextPart('end')] if len(continued) > 1 else [call('plain')])

    bench = Bench()
    state = thread(user(), response('thinking', state='suspended', provider_response_id='job'))
    bindings = RunBindings[Any](model=FunctionModel(respond))
    result = await bench.run(previous_state=state, tool_recovery=policy, bindings=bindings)
    assert (result.status, bench.ran) == ('completed', ['plain'])
    assert 'response!suspended' in continued[0][-1]
    refused = await bench.run('new input', previous_state=state, tool_recovery=policy, bindings=bindings)
    assert (refused.status, refused.error.details) == ('failed', {'exception_type': 'UserError'})
    assert refused.state == state


async def test_case_69_another_declaration_is_not_a_retry_declaration() -> None:
    def managed() -> str:
        raise AssertionError('ran')

    bench = Bench('done', tools=[Tool(managed, metadata={'idempotency': 'provider-key', 'idempotent': True})])
    result = await bench.run(previous_state=pending('managed'))
    assert outcomes(result.state) == {'managed': 'unknown'}


@pytest.mark.parametrize('policy', ['declared', 'always'])
async def test_case_70_policy_of_a_capability_holds_for_a_restored_call(policy: str) -> None:
    hooks = Hooks[Any]()

    @hooks.on.before_tool_execute
    async def check(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        raise {'safe': ToolFailed('not allowed'), 'safe_ask': ApprovalRequired()}[call.tool_name]

    denied = Bench('done', capabilities=[hooks])
    result = await denied.run(previous_state=pending('safe'), tool_recovery=policy)
    assert (outcomes(result.state), denied.ran) == ({'safe': 'failed: not allowed'}, [])
    asks = Bench('done', capabilities=[hooks])
    assert asked(await asks.run(previous_state=pending('safe_ask'), tool_recovery=policy))['approvals'] == ['safe_ask']
    assert asks.ran == []


@pytest.mark.parametrize('policy', POLICIES)
async def test_case_71_half_made_provider_call_is_dropped_and_its_siblings_stay(policy: str) -> None:
    bench = Bench('done')
    half = NativeToolCallPart('web_search', {}, tool_call_id='native')
    state = thread(user(), response('so ', half, call('safe'), state='interrupted'))
    result = await bench.run(previous_state=state, tool_recovery=policy)
    assert kinds(result.state.message_history)[1] == 'response!interrupted(text:so ,call:safe)'
    assert outcomes(result.state) == {'safe': settled(policy)['safe']}


async def test_case_71_whole_provider_call_stays_and_an_empty_response_goes() -> None:
    half = NativeToolCallPart('web_search', {}, tool_call_id='native')
    whole = [half, NativeToolReturnPart('web_search', 'found', tool_call_id='native')]
    kept = await Bench('done').run('on', previous_state=thread(user(), response(*whole, state='interrupted')))
    assert 'builtin-tool-call' in kinds(kept.state.message_history)[1]
    gone = await Bench('done').run('on', previous_state=thread(user(), response(half, state='interrupted')))
    assert kinds(gone.state.message_history) == [
        'request(user-prompt:go)',
        'request(user-prompt:on)',
        'response(text:done)',
    ]


async def test_case_72_unknown_policy_is_refused_before_anything_runs() -> None:
    bench = Bench()
    with pytest.raises(ConfigurationError, match="'never', 'declared' or 'always'"):
        bench.stream(previous_state=pending('safe'), tool_recovery='auto')
    with pytest.raises(ConfigurationError):
        await bench.run(previous_state=pending('safe'), tool_recovery='auto')
    with pytest.raises(TypeError):
        bench.stream(previous_state=pending('safe'), execute_pending_tools=True)
    assert bench.ran == []


async def test_other_capabilities_see_a_restored_call_as_any_other() -> None:
    seen: list[str] = []

    class Watch(AbstractCapability[Any]):
        async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
            seen.append(call.tool_call_id)
            return await handler(args)

    bench = Bench('done', capabilities=[Watch()])
    await bench.run(previous_state=pending('safe', 'plain'), bindings=RunBindings())
    assert seen == ['safe']


async def test_unknown_result_tells_the_three_facts_and_nothing_else() -> None:
    bench = Bench('done')
    result = await bench.run(previous_state=pending('plain'))
    part = result.state.message_history[2].parts[0]
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id, part.outcome, part.metadata) == ('plain', 'plain', 'failed', None)
    text = str(part.content)
    assert 'interrupted' in text
    assert 'in full, in part or not at all' in text
    assert 'before deciding to call it again' in text
    assert part.timestamp.year == 2026


async def test_state_is_not_changed_by_a_run_from_it() -> None:
    state = pending('safe', 'plain')
    before = state.model_dump_json()
    bench = Bench('done')
    await bench.run('x', previous_state=state, tool_recovery='always')
    assert state.model_dump_json() == before


async def test_empty_tail_response_ends_the_run_without_a_request() -> None:
    bench = Bench('unused')
    result = await bench.run(previous_state=thread(user(), response('the answer')))
    assert (result.output, bench.model.requests) == ('the answer', 0)


@pytest.mark.parametrize('policy', POLICIES)
@pytest.mark.parametrize('prompt', [None, 'new input'])
async def test_results_of_restored_calls_are_new_messages(policy: str, prompt: str | None) -> None:
    bench = Bench('done')
    result = await bench.run(prompt, previous_state=pending('plain', 'safe'), tool_recovery=policy)
    parts = [part for message in result.new_messages() for part in message.parts]
    returned_ids = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
    assert sorted(returned_ids) == ['plain', 'safe']
    assert [part.content for part in parts if isinstance(part, UserPromptPart)] == ([prompt] if prompt else [])
    assert len(result.all_messages()) - len(result.new_messages()) == 2
