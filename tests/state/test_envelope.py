"""`HarnessState` (cases 1 to 17)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai.messages import BinaryContent, ModelRequest, SystemPromptPart, UserPromptPart

from harness_temporal.errors import StateEnvelopeError, StateError
from harness_temporal.state import HarnessState
from tests.state.support import Bench, response, returned, thread, user

ENVIRONMENT = {'shell': {'provider_key': 'local', 'state_version': '1', 'state': {'cwd': '/'}}}
CAPABILITIES = {'entries': {'acme.counter': {'version': '1', 'data': {'value': 1}}}}


def document(**changes: Any) -> str:
    fields = json.loads(thread(user()).model_dump_json())
    return json.dumps({**fields, **changes})


def refused(text: str) -> StateEnvelopeError:
    with pytest.raises(StateEnvelopeError) as caught:
        HarnessState.model_validate_json(text)
    return caught.value


def test_case_1_new_state_is_empty_and_has_an_id_of_its_own() -> None:
    state, other = HarnessState.new(), HarnessState.new()
    assert re.fullmatch('thread_[0-9a-f]{32}', state.thread_id)
    assert state.thread_id != other.thread_id
    assert (state.schema_version, state.message_history) == ('1', ())
    assert (state.agent_context_state.entries, state.environment_states, state.refs) == ({}, {}, ())


def test_case_2_thread_id_of_the_seed_is_accepted() -> None:
    assert HarnessState.new(thread_id='thr_productthread1').thread_id == 'thr_productthread1'


@pytest.mark.parametrize(
    'thread_id',
    [
        *('thr-abc', 'Thr_a', 'thr_', '_a', '1a_b', 'thr_a_b', 'thr__a', ' thr_a', 'thr_a\n', '', 'thr_é', 'thr_А'),
        pytest.param('thread-' + 'a' * 31, id='case-4-31-digits'),
        pytest.param('thread-' + 'A' * 32, id='case-4-upper-case'),
        pytest.param('thr_' + 'a' * 253, id='case-5-257-characters'),
    ],
)
def test_case_3_bad_thread_id_is_refused(thread_id: str) -> None:
    assert refused(document(thread_id=thread_id)).locations == ('thread_id',)
    with pytest.raises(StateEnvelopeError):
        HarnessState.new(thread_id=thread_id)


@pytest.mark.parametrize('thread_id', ['thread-' + '0a' * 16, 'thr_' + 'a' * 252], ids=['case-4', 'case-5'])
def test_longest_and_dashed_thread_ids_are_accepted(thread_id: str) -> None:
    assert HarnessState.new(thread_id=thread_id).thread_id == thread_id


@pytest.mark.parametrize('version', ['2', 1, '', None, '1 '])
def test_case_6_other_schema_version_is_told_as_such(version: Any) -> None:
    error = refused(document(schema_version=version))
    assert (error.code, error.locations) == ('state_version_unsupported', ('schema_version',))
    assert "'1'" in str(error)


@pytest.mark.parametrize('text', ['', '{', '[]', 'null', '"1"', '{}', '{"schema_version":"1"}', '{"thread_id":"a_b"}'])
def test_case_6_damaged_document_is_a_typed_error(text: str) -> None:
    assert refused(text).code == 'state_invalid'


def test_case_7_json_round_trip_gives_an_equal_value() -> None:
    state = thread(user(), response('hi'), agent_context_state=CAPABILITIES, environment_states=ENVIRONMENT)
    restored = HarnessState.model_validate_json(state.model_dump_json())
    assert restored == state
    assert hash(restored) == hash(state)
    assert restored != thread(user())
    assert restored.message_history == state.message_history
    assert HarnessState.model_validate(state.model_dump()) == state


@pytest.mark.parametrize('field', ['thread_id', 'message_history', 'schema_version', 'agent_context_state'])
def test_case_8_state_is_frozen(field: str) -> None:
    state = thread(user())
    with pytest.raises((ValidationError, AttributeError)):
        setattr(state, field, 'other_1')
    assert state == thread(*state.message_history)


def test_case_8_copying_with_changes_is_refused() -> None:
    state = thread(user())
    assert state.model_copy() == state
    with pytest.raises(StateError):
        state.model_copy(update={'thread_id': 'not valid'})


async def test_case_9_unknown_field_survives_parse_dump_run_and_fork() -> None:
    state = HarnessState.model_validate_json(document(from_later={'a': [1, None]}, _messages='not ours'))
    result = await Bench('hello').run('hi', previous_state=state)
    assert result.status == 'completed'
    for kept in (state, result.state, result.state.fork()):
        fields = json.loads(kept.model_dump_json())
        assert (fields['from_later'], fields['_messages']) == ({'a': [1, None]}, 'not ours')
    assert len(result.state.message_history) == 3


@pytest.mark.parametrize(
    'value',
    [
        {'entries': {}, 'more': 1},
        {'entries': {'a': {'version': '1', 'data': 1, 'more': 1}}},
        {'entries': {'a': {'version': '1'}}},
        {'entries': {' ': {'version': '1', 'data': 1}}},
        {'entries': {'a': {'version': ' ', 'data': 1}}},
        None,
        [],
    ],
)
def test_case_10_capability_states_are_strict_about_their_shape(value: Any) -> None:
    assert refused(document(agent_context_state=value)).locations == ('agent_context_state',)


@pytest.mark.parametrize(
    'value',
    [
        None,
        'text',
        {},
        3,
        ['text'],
        [None],
        [{'kind': 'request'}],
        [{'kind': 'other', 'parts': []}],
        [{'kind': 'escaped'}],
    ],
)
def test_case_11_bad_history_is_an_error_at_message_history(value: Any) -> None:
    assert refused(document(message_history=value)).locations == ('message_history',)


def test_case_11_every_wrong_field_is_named() -> None:
    error = refused(document(message_history=None, thread_id='', agent_context_state=None))
    assert set(error.locations) == {'message_history', 'thread_id', 'agent_context_state'}


def test_case_12_neither_what_was_given_nor_what_was_read_is_the_stored_value() -> None:
    messages = [user('one')]
    entries: dict[str, Any] = {'acme': {'version': '1', 'data': {'list': [1]}}}
    state = HarnessState.new(message_history=messages, agent_context_state={'entries': entries})
    before = state.model_dump_json()
    messages[0].parts = []
    messages.append(user('two'))
    entries['acme']['data']['list'].append(2)
    read = state.message_history
    read[0].parts = []
    state.agent_context_state.entries['acme'].data['list'].append(3)
    state.environment_states['new'] = None  # type: ignore[assignment]
    assert state.model_dump_json() == before
    assert state.message_history is not state.message_history
    assert state.message_history[0] is not state.message_history[0]


def test_case_13_fork_keeps_all_but_the_environments() -> None:
    state = thread(
        user(),
        agent_context_state=CAPABILITIES,
        environment_states=ENVIRONMENT,
    )
    before = state.model_dump_json()
    branch = state.fork(thread_id='thr_productbranch1')
    assert branch.thread_id == 'thr_productbranch1'
    assert (branch.message_history, branch.agent_context_state) == (state.message_history, state.agent_context_state)
    assert (branch.environment_states, list(state.environment_states)) == ({}, ['shell'])
    assert state.model_dump_json() == before
    assert state.fork().thread_id not in (state.thread_id, state.fork().thread_id)


def test_case_13_fork_keeps_references() -> None:
    reference = {'key': 'k', 'digest': 'a' * 64, 'size': 3}
    branch = HarnessState.model_validate_json(document(refs=[reference])).fork()
    assert [item.model_dump() for item in branch.refs] == [reference]
    assert refused(document(refs=[{**reference, 'digest': 'A' * 64}])).code == 'state_invalid'


def test_case_14_fork_needs_another_valid_id() -> None:
    state = thread(user())
    with pytest.raises(StateError) as caught:
        state.fork(thread_id=state.thread_id)
    assert caught.value.code == 'thread_id_unchanged'
    with pytest.raises(StateEnvelopeError):
        state.fork(thread_id='not an id')


@pytest.mark.parametrize(
    'content', [object(), {'a': float('nan')}, {'a': [float('inf')]}], ids=['object', 'nan', 'inf']
)
def test_case_15_message_that_json_cannot_hold_is_an_error_at_message_history(content: Any) -> None:
    with pytest.raises(StateEnvelopeError) as caught:
        thread(user(), response('x'), returned('a', content=content))
    assert caught.value.locations == ('message_history',)


def test_case_16_binary_content_is_base64_and_reads_back() -> None:
    content = BinaryContent(b'\xff\x00\x01', media_type='application/octet-stream')
    state = thread(ModelRequest(parts=[UserPromptPart(['see', content])]))
    assert '_wAB' in state.model_dump_json()
    part = HarnessState.model_validate_json(state.model_dump_json()).message_history[0].parts[0]
    assert isinstance(part, UserPromptPart)
    assert part.content[1] == content


@pytest.mark.parametrize(
    'content',
    [{'kind': 'binary', 'data': 'x'}, {'a': {'kind': 'image-url'}}, 'nul \x00', '\ud800', {'\ud800': 1}, 2**70],
)
def test_case_16_values_that_plain_json_would_change_read_back(content: Any) -> None:
    state = thread(user(), response('x'), returned('a', content=content))
    restored = HarnessState.model_validate_json(state.model_dump_json())
    part: Any = restored.message_history[2].parts[0]
    assert (restored, part.content, type(part.content)) == (state, content, type(content))


@pytest.mark.parametrize(('prompt', 'expected'), [('B', ['B']), ((), [])], ids=['other', 'none'])
async def test_case_17_system_prompt_is_that_of_the_present_definition(prompt: Any, expected: list[str]) -> None:
    first = await Bench('one', system_prompt='A').run('hi')
    bench = Bench('two', system_prompt=prompt)
    second = await bench.run('again', previous_state=first.state)
    for messages in (second.state.message_history, bench.model.sent[0]):
        system = [part for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
        assert [part.content for part in system] == expected
    assert 'A' in [part.content for part in first.state.message_history[0].parts]
