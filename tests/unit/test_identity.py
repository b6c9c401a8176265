from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_temporal.errors import InvalidRunIdError, MissingRunIdError
from harness_temporal.identity import (
    RUN_ID_LIMIT,
    check_run_id,
    decode_run_id,
    event_key,
    resolve_run_id,
    snapshot_key,
    tool_call_key,
)
from harness_temporal.testing.runs import INVALID_RUN_IDS, VALID_RUN_IDS

any_text = st.text(alphabet=st.characters(exclude_categories=()))
short_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def call_key(**changes: Any) -> str:
    given = {'run_id': 'run', 'step_index': 1, 'tool_call_id': 'call', 'tool_name': 'tool', 'arguments': {}}
    return tool_call_key(**{**given, **changes})


# --- which run ids there are ---


@pytest.mark.parametrize('run_id', VALID_RUN_IDS.values(), ids=VALID_RUN_IDS)
def test_valid_run_id_is_returned_as_it_is(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize('run_id', INVALID_RUN_IDS.values(), ids=INVALID_RUN_IDS)
def test_invalid_run_id_is_refused_with_what_it_was(run_id: str) -> None:
    with pytest.raises(InvalidRunIdError) as caught:
        check_run_id(run_id)
    assert caught.value.run_id == run_id
    str(caught.value).encode()


def test_limit_counts_characters_and_the_error_says_how_many() -> None:
    assert check_run_id('x' * RUN_ID_LIMIT)
    with pytest.raises(InvalidRunIdError, match='201 characters, at most 200'):
        check_run_id('x' * (RUN_ID_LIMIT + 1))


def test_error_of_a_huge_run_id_is_not_huge() -> None:
    with pytest.raises(InvalidRunIdError) as caught:
        check_run_id('x' * 1_000_000)
    assert len(str(caught.value)) < 500


@given(any_text)
def test_what_is_accepted_is_safe_as_a_file_name(run_id: str) -> None:
    try:
        check_run_id(run_id)
    except InvalidRunIdError:
        return
    assert run_id.isascii()
    assert not set(run_id) & set('/\\\0 \n\t\r%$*?"\'<>|')
    assert run_id not in ('', '.', '..')


# --- which id a run gets ---


def test_explicit_run_id_wins_and_is_used_as_it_is() -> None:
    assert resolve_run_id(explicit='mine', agent_name='agent', context_run_id='context') == 'mine'
    assert resolve_run_id(explicit='mine', agent_name=None, context_run_id=None) == 'mine'


def test_context_run_id_is_used_as_it_is_without_an_agent_name() -> None:
    assert resolve_run_id(explicit=None, agent_name=None, context_run_id='context') == 'context'


def test_agent_name_and_context_run_id_are_encoded_together() -> None:
    run_id = resolve_run_id(explicit=None, agent_name='код/агент', context_run_id='../x')
    assert check_run_id(run_id) == run_id
    assert decode_run_id(run_id) == ('код/агент', '../x')


@pytest.mark.parametrize('agent_name', [None, 'agent', ''])
@pytest.mark.parametrize('context_run_id', [None, ''])
def test_run_without_any_id_is_refused(agent_name: str | None, context_run_id: str | None) -> None:
    with pytest.raises(MissingRunIdError):
        resolve_run_id(explicit=None, agent_name=agent_name, context_run_id=context_run_id)


@pytest.mark.parametrize('explicit', ['', '../x', 'x' * 201])
def test_explicit_run_id_is_checked_and_never_replaced(explicit: str) -> None:
    with pytest.raises(InvalidRunIdError):
        resolve_run_id(explicit=explicit, agent_name='agent', context_run_id='context')


def test_context_run_id_is_checked() -> None:
    with pytest.raises(InvalidRunIdError):
        resolve_run_id(explicit=None, agent_name=None, context_run_id='a/b')


def test_derived_id_that_is_too_long_is_refused() -> None:
    # 16 bytes become 22 characters, the dot is one, and 132 bytes become 176.
    assert len(resolve_run_id(explicit=None, agent_name='a' * 16, context_run_id='x' * 132)) == 199
    with pytest.raises(InvalidRunIdError):
        resolve_run_id(explicit=None, agent_name='a' * 16, context_run_id='x' * 134)


@given(short_text, short_text.filter(bool), short_text, short_text.filter(bool))
def test_derived_ids_are_different_for_different_pairs(a: str, b: str, c: str, d: str) -> None:
    one = resolve_run_id(explicit=None, agent_name=a, context_run_id=b)
    other = resolve_run_id(explicit=None, agent_name=c, context_run_id=d)
    assert (one == other) == ((a, b) == (c, d))


@given(short_text, short_text.filter(bool))
def test_derived_id_can_be_decoded(agent_name: str, context_run_id: str) -> None:
    run_id = resolve_run_id(explicit=None, agent_name=agent_name, context_run_id=context_run_id)
    assert decode_run_id(run_id) == (agent_name, context_run_id)


@given(st.text(alphabet='ABZabz019_.:-=+/', max_size=12))
def test_only_ids_that_encode_their_pair_exactly_are_decoded(run_id: str) -> None:
    pair = decode_run_id(run_id)
    if pair is not None and pair[1]:
        assert resolve_run_id(explicit=None, agent_name=pair[0], context_run_id=pair[1]) == run_id


@pytest.mark.parametrize('run_id', ['plain', 'a.b', 'YQ.Yg.YQ', 'YR.Yg', 'YQ==.Yg', 'Y Q.Yg', 'YQ.Y:g', '_w._w', ''])
def test_other_ids_are_not_decoded(run_id: str) -> None:
    assert decode_run_id(run_id) is None


# --- keys of tool calls ---


@pytest.mark.parametrize(
    'changes',
    [
        {'run_id': 'other'},
        {'step_index': 2},
        {'tool_call_id': ''},
        {'tool_name': 'other'},
        {'arguments': {'a': 1}},
        {'arguments': {'a': '1'}},
        {'arguments': {'a': None}},
        {'arguments': {'a': [1]}},
        {'arguments': {'a': float('nan')}},
        {'occurrence': 1},
    ],
    ids=str,
)
def test_call_key_differs_when_anything_of_the_call_differs(changes: dict[str, Any]) -> None:
    keys = {call_key(), call_key(arguments={'a': 2}), call_key(**changes)}
    assert len(keys) == 3


def test_fields_of_a_call_do_not_run_into_each_other() -> None:
    assert call_key(tool_call_id='a', tool_name='bc') != call_key(tool_call_id='ab', tool_name='c')
    assert call_key(tool_call_id='a","b', tool_name='c') != call_key(tool_call_id='a', tool_name='b","c')


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.randoms())
def test_call_key_does_not_depend_on_the_order_of_arguments(arguments: dict[str, Any], random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            return {key: shuffled(item) for key, item in items}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    assert call_key(arguments=shuffled(arguments)) == call_key(arguments=arguments)


@given(json_values, json_values)
def test_call_key_differs_for_different_arguments(one: Any, other: Any) -> None:
    are_same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (call_key(arguments={'v': one}) == call_key(arguments={'v': other})) == are_same


@pytest.mark.parametrize(
    'arguments',
    [{'name': 'caf\udce9.txt'}, {'\udce9': 1}, {'data': b'\xff'}, {'n': 2**70}, {'x': {'y': '\ud800'}}],
    ids=['surrogate', 'surrogate in a key', 'bytes', 'big integer', 'nested surrogate'],
)
def test_call_key_takes_any_arguments(arguments: dict[str, Any]) -> None:
    assert call_key(arguments=arguments) == call_key(arguments=dict(arguments))
    assert call_key(arguments=arguments) != call_key()


def test_call_key_tells_apart_what_differs_only_in_lone_surrogates() -> None:
    keys = [call_key(tool_call_id=text) for text in ('\udce9', '\udcea', '\ufffd', '?')]
    keys += [call_key(arguments={text: text}) for text in ('\udce9', '\udcea', '\ufffd', '?')]
    assert len(set(keys)) == 8


def test_call_key_is_the_same_in_another_process() -> None:
    arguments = {'b': 1, 'a': {'d': [1, 'x'], 'c': None}}
    code = (
        'from harness_temporal.identity import tool_call_key as key;'
        f"print(key(run_id='run', step_index=1, tool_call_id='call', tool_name='tool', arguments={arguments!r}))"
    )
    printed = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == call_key(arguments=arguments)


# --- keys of events and snapshots ---


@given(
    st.tuples(st.sampled_from(['run_started', 'run_failed']), st.integers(0, 99), short_text, st.integers(1, 9)),
    st.tuples(st.sampled_from(['run_started', 'run_failed']), st.integers(0, 99), short_text, st.integers(1, 9)),
)
def test_event_keys_are_different_for_different_events(one: Any, other: Any) -> None:
    def key(kind: str, step_index: int, subject: str, attempt: int) -> str:
        return event_key(kind, step_index=step_index, subject=subject, attempt=attempt)

    assert (key(*one) == key(*other)) == (one == other)


def test_event_key_is_not_confused_by_a_subject_with_colons() -> None:
    keys = {
        event_key('run_failed', step_index=1, subject='a:1.1'),
        event_key('run_failed', step_index=1, subject='a'),
        event_key('run_failed', step_index=1, subject='a', attempt=2),
        event_key('run_failed', step_index=1, subject='a', run_attempt=2),
        event_key('run_failed', step_index=1, subject=''),
        event_key('run_failed', step_index=1, subject=':'),
    }
    assert len(keys) == 6


def test_snapshot_key_differs_with_each_of_its_parts() -> None:
    given: dict[str, Any] = {'save': 1, 'step_index': 1, 'state': 'complete', 'attempt': 1}
    changes: list[dict[str, Any]] = [
        {},
        {'save': 2},
        {'step_index': 2},
        {'state': 'interrupted'},
        {'attempt': 2},
        {'request_attempt': 2},
        {'attempt': 2, 'request_attempt': 2},
    ]
    assert len({snapshot_key(**{**given, **change}) for change in changes}) == len(changes)
