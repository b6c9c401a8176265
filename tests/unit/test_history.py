from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import messages as messages_module
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from harness_temporal.errors import NotStorableError, StoreCorruptionError
from harness_temporal.history import (
    Pairing,
    decode_message,
    encode_history,
    encode_message,
    has_response,
    is_provider_valid,
    link,
    pair_calls,
    since,
    snapshot_state,
    stored_message,
)
from harness_temporal.testing.samples import MESSAGES, NOON, VALUES, asks, calls, returns, same, says, turns


def calls_all(*ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart('tool', {}, id_) for id_ in ids], timestamp=NOON)


def returns_all(*ids: str, **fields: Any) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart('tool', 'x', id_, timestamp=NOON, **fields) for id_ in ids])


def old_retry(tool_name: str | None, tool_call_id: str = 'a') -> ModelRequest:
    """Make a retry as releases before Pydantic AI 2.60 did, which still may be in a history."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        part = messages_module.RetryPromptPart('Again.', tool_name=tool_name, tool_call_id=tool_call_id, timestamp=NOON)
    return ModelRequest(parts=[part])


def feedback(content: Any, cause: Any = 'model_retry') -> ModelRequest:
    return ModelRequest(parts=[RetryFeedbackPart(content, retry=RetryInfo(cause=cause), timestamp=NOON)])


# --- pairing ---


@pytest.mark.parametrize(
    'history',
    [
        [],
        [asks('x')],
        [asks('x'), says('y')],
        [asks('x'), calls_all('a'), returns_all('a')],
        [asks('x'), calls_all('a', 'b'), returns_all('b', 'a'), says('y')],
        [asks('x'), calls_all('a', 'b'), returns_all('a'), returns_all('b')],
        [calls_all('a'), asks('between'), returns_all('a')],
        [calls_all(''), returns_all(''), calls_all(''), returns_all('')],
        [calls_all('a'), returns_all('a'), calls_all('a'), returns_all('a')],
        *[[calls_all('a'), returns_all('a', outcome=outcome)] for outcome in ('failed', 'denied', 'interrupted')],
        [calls_all('a'), returns_all('a', outcome='retried')],
        [calls_all('a'), old_retry('tool')],
        [says('y'), old_retry(None), says('z')],
        [says('y'), feedback('Again.'), says('z')],
        [
            ModelResponse(
                parts=[
                    NativeToolCallPart('web_search', {}, 'n'),
                    NativeToolReturnPart('web_search', 'x', 'n', timestamp=NOON),
                    NativeToolCallPart('web_search', {}, 'open'),
                ],
                timestamp=NOON,
            )
        ],
    ],
    ids=lambda history: ' '.join(str(part.part_kind) for message in history for part in message.parts) or 'empty',
)
def test_settled_history_is_complete(history: list[ModelMessage]) -> None:
    assert pair_calls(history) == Pairing()
    assert snapshot_state(history) == 'complete'
    assert is_provider_valid(history) == bool(history)


@pytest.mark.parametrize(
    ('history', 'pairing'),
    [
        ([calls_all('a')], Pairing(unanswered=('a',))),
        ([calls_all('b', 'a', 'c'), returns_all('a')], Pairing(unanswered=('b', 'c'))),
        ([calls_all('a'), says('y'), returns_all('a')], Pairing(unanswered=('a',), orphans=('a',))),
        ([calls_all('a'), calls_all('b'), returns_all('b')], Pairing(unanswered=('a',))),
        ([calls_all('a'), calls_all('a'), returns_all('a')], Pairing(unanswered=('a',))),
        ([calls_all(''), calls_all('')], Pairing(unanswered=('', ''))),
        ([returns_all('a'), calls_all('a')], Pairing(unanswered=('a',), orphans=('a',))),
        ([asks('x'), returns_all('a')], Pairing(orphans=('a',))),
        ([calls_all('a'), returns_all('a', 'b')], Pairing(orphans=('b',))),
        ([calls_all('a'), returns_all('a'), says('y'), returns_all('a')], Pairing(orphans=('a',))),
        ([calls_all('a'), returns_all('a', 'a')], Pairing(repeated=('a',))),
        ([calls_all('a'), returns_all('a'), returns_all('a')], Pairing(repeated=('a',))),
        ([calls_all('a'), old_retry('tool', 'b')], Pairing(unanswered=('a',), orphans=('b',))),
        ([calls_all('a'), old_retry(None, 'a')], Pairing(unanswered=('a',))),
        ([calls_all('a'), feedback('Again.')], Pairing(unanswered=('a',))),
        ([calls_all('a'), asks('x')], Pairing(unanswered=('a',))),
        ([calls_all('a'), returns_all('A')], Pairing(unanswered=('a',), orphans=('A',))),
    ],
)
def test_broken_pairs_are_told_apart_and_the_history_is_interrupted(
    history: list[ModelMessage], pairing: Pairing
) -> None:
    assert pair_calls(history) == pairing
    assert snapshot_state(history) == 'interrupted'
    assert not is_provider_valid(history)


@pytest.mark.parametrize('answers', [(), ('a',), ('a', 'a')])
def test_id_that_one_response_calls_twice_is_repeated_however_it_is_answered(answers: tuple[str, ...]) -> None:
    history = [calls_all('a', 'a'), returns_all(*answers)]
    assert set(pair_calls(history).repeated) == {'a'}
    assert snapshot_state(history) == 'interrupted'


def test_repeated_ids_are_in_order_of_the_calls_in_every_process() -> None:
    ids = [f'call-{index}' for index in range(8)]
    assert pair_calls([calls_all(*ids, *ids), returns_all(*ids)]).repeated == tuple(ids)


def test_history_with_nothing_but_prompts_has_no_response() -> None:
    assert not has_response([])
    assert not has_response([asks('x'), ModelRequest(parts=[SystemPromptPart('Be brief.')])])
    assert has_response([asks('x'), says('y')])
    assert has_response([ModelResponse(parts=[])])


# --- encoding ---


@pytest.mark.parametrize('message', MESSAGES.values(), ids=MESSAGES)
def test_message_reads_back_equal(message: ModelMessage) -> None:
    assert decode_message(encode_message(message).body) == message


@pytest.mark.parametrize('message', MESSAGES.values(), ids=MESSAGES)
def test_message_that_was_read_back_has_the_same_identity(message: ModelMessage) -> None:
    stored = encode_message(message)
    assert encode_message(decode_message(stored.body)) == stored
    assert stored_message(stored.body) == stored


@pytest.mark.parametrize('message', MESSAGES.values(), ids=MESSAGES)
def test_ordinary_message_is_stored_as_the_json_of_pydantic_ai(message: ModelMessage) -> None:
    (expected,) = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    assert json.loads(encode_message(message).body) == expected


def test_encoding_leaves_the_message_as_it_is() -> None:
    content = {'kind': 'x', 'text': '\ud800', 'list': ['\x00', {'kind': 1}]}
    message = returns(content)
    before = repr(message)
    encode_message(message)
    assert repr(message) == before
    assert message.parts[0].content is content


def test_messages_that_differ_have_different_identities() -> None:
    messages = [
        asks('x'),
        asks('X'),
        asks('x '),
        asks('\ud800'),
        asks('\ud801'),
        asks('\ufffd'),
        asks('\uf8ffd800'),
        asks('\\ud800'),
        says('x'),
        returns('x'),
        returns(['x']),
        returns({'kind': 'x'}),
        returns({'\uf8ff006bind': 'x'}),
        returns({'\ud800': 1}),
        returns({'\ufffd': 1}),
        returns(1),
        returns('1'),
        returns(1.0),
        returns(True),
        returns(None),
        returns('null'),
        returns(float('nan')),
        returns('NaN'),
        calls('{}'),
        calls({}),
        calls(None),
    ]
    assert len({encode_message(message).digest for message in messages}) == len(messages)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=6)
    | st.text(alphabet='\x00\ud800\uf8ff06bk', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(alphabet=st.characters(exclude_categories=()), max_size=5)
            | st.sampled_from(['kind', 'data', 'media_type', 'url', '\ud800', 'content_file_digests', 'part_kind']),
            inner | st.sampled_from(['binary', 'image-url', 'eA==', 'image/png', 'https://example.com/a.png']),
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(json_values)
def test_any_value_of_a_tool_reads_back(value: Any) -> None:
    for message in (returns(value), returns('x', metadata=value), calls({'value': value})):
        assert same(decode_message(encode_message(message).body), message)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_reads_back(text: str) -> None:
    for message in (asks(text), says(text), calls(text), calls({}, text), returns(text)):
        assert decode_message(encode_message(message).body) == message


@pytest.mark.parametrize('value', VALUES.values(), ids=VALUES)
def test_stored_body_is_text_that_any_store_takes(value: Any) -> None:
    text = encode_message(returns(value)).body.decode('utf-8')
    assert '\x00' not in text


def test_model_of_an_application_is_stored_as_its_json() -> None:
    class Invoice(BaseModel):
        total: int
        lines: tuple[int, ...]

    read = decode_message(encode_message(returns([Invoice(total=3, lines=(1, 2))])).body)
    assert read == returns([{'total': 3, 'lines': [1, 2]}])


@dataclass(slots=True)
class Slotted:
    kind: str
    name: str


@dataclass
class Plain:
    kind: str
    name: str


@pytest.mark.parametrize('make', [Slotted, Plain])
def test_dataclass_of_an_application_is_stored_as_its_json(make: Callable[[str, str], Any]) -> None:
    for name in ('x', 'caf\udce9', '\x00'):
        read = decode_message(encode_message(returns({'rows': [make('invoice', name)]})).body)
        assert read == returns({'rows': [{'kind': 'invoice', 'name': name}]})


@pytest.mark.parametrize(
    ('value', 'part'),
    [(object(), 0), ({'a': object()}, 0), (10**5000, 0), ({1: 'a', '1': 'b'}, 0)],
    ids=['object', 'nested object', 'integer beyond what JSON readers take', 'two keys that become one'],
)
def test_value_that_would_not_read_back_is_refused_by_its_part(value: Any, part: int) -> None:
    message = ModelRequest(
        parts=[
            ToolReturnPart('good', 'x', 'call-1', timestamp=NOON),
            ToolReturnPart('bad', value, 'call-2', timestamp=NOON),
        ]
    )
    with pytest.raises(NotStorableError) as caught:
        encode_message(message)
    assert caught.value.part == f"Part {part + 1} (tool-return of 'bad') of a request"


def test_value_that_would_not_read_back_is_refused_outside_of_parts() -> None:
    message = ModelRequest(parts=[UserPromptPart('x', timestamp=NOON)], metadata={'handle': object()})
    with pytest.raises(NotStorableError) as caught:
        encode_message(message)
    assert caught.value.part == 'A request'


def test_refused_message_is_refused_again() -> None:
    message = returns({1: 'a', '1': 'b'})
    encode_message(returns({'1': 'b'}))
    for _ in range(2):
        with pytest.raises(NotStorableError):
            encode_message(message)


# --- retries, old and new ---


def test_errors_without_their_input_are_refused_and_the_part_named() -> None:
    broken = feedback([{'type': 'int_parsing', 'loc': ('a',), 'msg': 'no'}], cause='validation_error')
    with pytest.raises(NotStorableError) as caught:
        encode_message(broken)
    assert caught.value.part == 'Part 0 (retry-feedback) of a request'


def test_old_retry_of_a_call_reads_back_as_what_it_means() -> None:
    read = decode_message(encode_message(old_retry('tool')).body)
    (part,) = read.parts
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id, part.content, part.outcome) == ('tool', 'a', 'Again.', 'retried')
    assert pair_calls([calls_all('a'), read]).settled


def test_old_retry_of_a_response_reads_back_as_what_it_means() -> None:
    read = decode_message(encode_message(old_retry(None)).body)
    (part,) = read.parts
    assert isinstance(part, RetryFeedbackPart)
    assert part.content == 'Again.'


def test_old_retry_that_is_stored_still_counts_as_an_answer() -> None:
    body = {
        'kind': 'request',
        'parts': [
            {'part_kind': 'retry-prompt', 'content': 'Again.', 'tool_name': 'tool', 'tool_call_id': 'a'},
            {'part_kind': 'retry-prompt', 'content': 'Again.', 'tool_name': None, 'tool_call_id': 'b'},
        ],
    }
    assert pair_calls([calls_all('a'), decode_message(json.dumps(body).encode())]).settled


# --- stored by older releases, or damaged ---


def test_response_of_an_older_release_can_be_read() -> None:
    body = {
        'kind': 'response',
        'parts': [{'part_kind': 'text', 'content': 'hi'}, {'part_kind': 'thinking', 'content': 'hm'}],
        'usage': {'input_tokens': 3, 'output_tokens': 1, 'details': None},
        'model_name': 'model-1',
        'timestamp': '2025-01-01T00:00:00Z',
        'vendor_id': 'response-1',
        'vendor_details': {'a': 1},
    }
    read = decode_message(json.dumps(body).encode())
    assert isinstance(read, ModelResponse)
    assert isinstance(read.parts[0], TextPart)
    assert (read.provider_response_id, read.provider_details, read.usage.input_tokens) == ('response-1', {'a': 1}, 3)


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'\x01',
        b'{}',
        b'null',
        b'{"kind": "request"}',
        b'{"parts": [{"part_kind": "new"}], "kind": "request"}',
        b'\xff',
    ],
)
def test_body_that_is_no_message_is_corruption(body: bytes) -> None:
    with pytest.raises(StoreCorruptionError):
        decode_message(body)


# --- links ---


def test_equal_prefixes_are_the_same_links() -> None:
    one, other = encode_history(turns(6)), encode_history([*turns(4), asks('elsewhere')])
    assert one.links[:4] == other.links[:4]
    assert one.links[4] != other.links[4]
    assert one.head != other.head


def test_link_says_what_it_is_on_top_of_and_how_long_the_history_is() -> None:
    history = encode_history(turns(3))
    assert [item.parent for item in history.links] == [None, history.links[0].digest, history.links[1].digest]
    assert [item.length for item in history.links] == [1, 2, 3]
    assert (history.base, history.base_length, history.length) == (None, 0, 3)
    assert history.head == history.links[-1].digest


def test_one_message_after_different_histories_is_different_links() -> None:
    heads = {
        encode_history(history).head
        for history in ([asks('x')], [asks('x'), asks('x')], [says('x'), asks('x')], [asks('y'), asks('x')])
    }
    assert len(heads) == 4


def test_empty_history_has_no_head() -> None:
    assert encode_history([]).head is None
    assert encode_history([]).length == 0


@pytest.mark.parametrize('length', range(1, 7))
def test_history_since_a_length_extends_what_comes_before(length: int) -> None:
    whole = encode_history(turns(6))
    rest = since(whole, length)
    assert rest.base == encode_history(turns(length)).head
    assert (rest.base_length, rest.length, rest.head) == (length, 6, whole.head)
    assert [item.message for item in rest.links] == [encode_message(message) for message in turns(6)[length:]]
    assert link(rest.base, rest.base_length, [item.message for item in rest.links]) == rest


@pytest.mark.parametrize('length', [-1, 0, 7, 99])
def test_history_since_nothing_or_more_than_there_is_is_the_whole(length: int) -> None:
    whole = encode_history(turns(6))
    assert since(whole, length) == whole


def test_history_put_together_from_its_pieces_is_the_same() -> None:
    whole = encode_history(turns(6))
    pieces = encode_history(turns(2))
    for end in (4, 6):
        pieces = link(
            pieces.head, pieces.length, [encode_message(message) for message in turns(6)[pieces.length : end]]
        )
    assert pieces.head == whole.head


def test_identity_of_a_history_is_the_same_in_another_process() -> None:
    code = (
        'from harness_temporal.history import encode_history as encode;'
        'from harness_temporal.testing.samples import turns, returns;'
        "print(encode([*turns(3), returns({'b': 1, 'a': [2]})]).head.hex())"
    )
    printed = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    head = encode_history([*turns(3), returns({'b': 1, 'a': [2]})]).head
    assert head is not None
    assert printed.strip() == head.hex()


def test_bytes_of_a_file_are_stored_once_per_message_not_as_a_list_of_numbers() -> None:
    data = bytes(range(256)) * 64
    message = ModelRequest(parts=[UserPromptPart([BinaryContent(data, media_type='x/y')], timestamp=NOON)])
    assert len(encode_message(message).body) < 1.5 * len(data)
