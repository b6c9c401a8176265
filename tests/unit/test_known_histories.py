"""A history that was encoded before is encoded as it is now, and only what is new of it costs anything."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta, timezone
from enum import StrEnum
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from harness_temporal import history
from harness_temporal.errors import NotStorableError
from harness_temporal.history import encode_history, encode_message, encoded_state, link, snapshot_state
from harness_temporal.known_histories import KnownHistories
from harness_temporal.records import StoredMessage
from harness_temporal.testing.samples import MESSAGES, NOON, asks, calls, returns, says, turns
from harness_temporal.unchanged import Watch


class Colour(StrEnum):
    RED = 'red'


class AnyText:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class NoTruth:
    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError('ambiguous')

    __hash__ = None  # pyright: ignore[reportAssignmentType]


@dataclass
class OwnReturn(ToolReturnPart):
    extra: int = 0

    def __post_init__(self) -> None:
        self.content = {'extra': self.extra}


def a_request() -> ModelRequest:
    return ModelRequest(
        parts=[
            UserPromptPart(
                [
                    'Look:',
                    BinaryContent(b'abc', media_type='image/png', vendor_metadata={'detail': {'level': 1}}),
                    ImageUrl('https://example.com/a.png'),
                ],
                timestamp=NOON,
            ),
            ToolReturnPart(
                'tool', {'rows': [{'n': 1}], 'pair': (1, [2])}, 'call-1', timestamp=NOON, metadata={'a': {'b': 1}}
            ),
        ],
        instructions='Be brief.',
        metadata={'tags': ['x']},
        timestamp=NOON,
    )


def a_response() -> ModelResponse:
    return ModelResponse(
        parts=[ToolCallPart('tool', {'query': {'page': 1}, 'flag': True}, 'call-2'), TextPart('x')],
        timestamp=NOON,
        provider_details={'logprobs': [{'token': 'x', 'p': 0.0}]},
        metadata={'seen': {'count': 1}},
    )


def the_part(message: Any, index: int = 0) -> Any:
    return message.parts[index]


Change = Callable[[Any, Any], object]

CHANGES: dict[str, Change] = {
    'nested argument': lambda q, r: the_part(r).args['query'].update(page=2),
    'argument of another type that is equal': lambda q, r: the_part(r).args.update(flag=1),
    'new argument': lambda q, r: the_part(r).args.update(new=None),
    'lost argument': lambda q, r: the_part(r).args.pop('flag'),
    'order of arguments': lambda q, r: the_part(r).args.update(query=the_part(r).args.pop('query')),
    'key of another type that is equal': lambda q, r: the_part(r).args.update({1: the_part(r).args.pop('flag')}),
    'arguments as text': lambda q, r: setattr(the_part(r), 'args', '{}'),
    'arguments of a replaced mapping': lambda q, r: (
        setattr(the_part(r), 'args', deepcopy(the_part(r).args)),
        encode_history([q, r]),
        the_part(r).args['query'].update(page=3),
    ),
    'call id': lambda q, r: setattr(the_part(r), 'tool_call_id', 'call-3'),
    'zero of another sign': lambda q, r: r.provider_details['logprobs'][0].update(p=-0.0),
    'provider details': lambda q, r: r.provider_details['logprobs'].append({}),
    'provider details gone': lambda q, r: setattr(r, 'provider_details', None),
    'metadata of a response': lambda q, r: r.metadata['seen'].update(count=2),
    'metadata of a request': lambda q, r: q.metadata['tags'].append('y'),
    'first metadata': lambda q, r: setattr(the_part(q, 1), 'metadata', {}),
    'metadata of a part': lambda q, r: the_part(q, 1).metadata['a'].update(b=True),
    'usage': lambda q, r: setattr(r.usage, 'input_tokens', 7),
    'details of usage': lambda q, r: r.usage.details.update(cached=1),
    'text': lambda q, r: setattr(the_part(r, 1), 'content', 'y'),
    'instructions': lambda q, r: setattr(q, 'instructions', 'Be long.'),
    'instructions gone': lambda q, r: setattr(q, 'instructions', None),
    'result': lambda q, r: the_part(q, 1).content['rows'][0].update(n=2),
    'list in a tuple': lambda q, r: the_part(q, 1).content['pair'][1].append(3),
    'result replaced': lambda q, r: setattr(the_part(q, 1), 'content', Colour.RED),
    'outcome': lambda q, r: setattr(the_part(q, 1), 'outcome', 'failed'),
    'time': lambda q, r: setattr(the_part(q), 'timestamp', NOON + timedelta(seconds=1)),
    'same moment in another zone': lambda q, r: setattr(
        the_part(q), 'timestamp', NOON.astimezone(timezone(timedelta(hours=1)))
    ),
    'content list': lambda q, r: the_part(q).content.append('more'),
    'content item': lambda q, r: the_part(q).content.__setitem__(0, 'Look!'),
    'bytes of a file': lambda q, r: setattr(the_part(q).content[1], 'data', b'abd'),
    'details of a file': lambda q, r: the_part(q).content[1].vendor_metadata['detail'].update(level=2),
    'address': lambda q, r: setattr(the_part(q).content[2], 'url', 'https://example.com/b.png'),
    'part appended': lambda q, r: r.parts.append(TextPart('z')),
    'part removed': lambda q, r: r.parts.pop(),
    'part replaced': lambda q, r: r.parts.__setitem__(1, TextPart('z')),
    'parts in another order': lambda q, r: r.parts.reverse(),
    'parts replaced': lambda q, r: setattr(r, 'parts', [TextPart('z')]),
    'attributes replaced': lambda q, r: setattr(the_part(r, 1), '__dict__', {**vars(TextPart('z'))}),
    'attribute taken away': lambda q, r: delattr(q, 'instructions'),
}


def anew(messages: Iterable[ModelMessage]) -> Any:
    """Encode what no known history has."""
    return link(None, 0, [encode_message(message) for message in deepcopy([*messages])])


def make_known(messages: list[ModelMessage]) -> None:
    """Encode as often as it takes until the messages are watched."""
    for _ in range(3):
        encode_history(messages)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[ModelMessage]:
    """Return the messages that are encoded from now on."""
    messages: list[ModelMessage] = []

    def encode(message: ModelMessage) -> StoredMessage:
        messages.append(message)
        return encode_message(message)

    monkeypatch.setattr(history, 'encode_message', encode)
    return messages


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_what_changed_in_place_is_encoded_as_it_is_now(change: Change) -> None:
    request, response = a_request(), a_response()
    messages = [asks('x'), request, response, says('y')]
    make_known(messages)
    before = encode_history(messages)
    assert before == anew(messages)
    change(request, response)
    assert anew(messages) != before
    for _ in range(3):
        assert encode_history(messages) == anew(messages)


def test_message_replaced_in_the_list_is_encoded() -> None:
    messages = turns(6)
    make_known(messages)
    messages[2] = says('other')
    assert encode_history(messages) == anew(messages)
    messages[2:4] = []
    assert encode_history(messages) == anew(messages)


def test_subclass_of_an_application_is_encoded_as_it_is_now() -> None:
    part = OwnReturn('tool', 'x', 'call-1', timestamp=NOON)
    messages: list[ModelMessage] = [asks('x'), ModelRequest(parts=[part], timestamp=NOON), says('y')]
    make_known(messages)
    part.content = {'extra': 2}
    assert encode_history(messages) == anew(messages)


@pytest.mark.parametrize('value', [AnyText(), NoTruth()], ids=['equal to all', 'not comparable'])
def test_object_that_cannot_be_stored_is_refused_in_a_known_history(value: object) -> None:
    part = ToolReturnPart('tool', 1, 'call-1', timestamp=NOON)
    messages: list[ModelMessage] = [asks('x'), ModelRequest(parts=[part], timestamp=NOON)]
    make_known(messages)
    part.content = value
    for _ in range(2):
        with pytest.raises(NotStorableError):
            encode_history(messages)
    part.content = 2
    assert encode_history(messages) == anew(messages)


def test_comparison_that_raises_is_a_change() -> None:
    part = TextPart('x')
    watch = Watch()
    assert watch.add(part)
    part.content = NoTruth()  # pyright: ignore[reportAttributeAccessIssue]
    assert watch.unchanged() == 0


def test_value_that_contains_itself_is_not_watched() -> None:
    loop: list[object] = []
    loop.append(loop)
    watch = Watch()
    assert watch.add('x')
    assert not watch.add(loop)
    assert (watch.length, watch.unchanged()) == (1, 1)


def test_places_after_the_last_may_be_forgotten() -> None:
    watch = Watch()
    watch.forget(2)
    assert watch.add([1])
    watch.forget(2)
    assert (watch.length, watch.unchanged()) == (1, 1)
    watch.forget(0)
    assert watch.length == 0


@pytest.mark.parametrize('after', [[], [1, 2]], ids=['less', 'more'])
def test_last_container_of_all_is_watched_as_well(after: list[int]) -> None:
    watch, items = Watch(), [1]
    assert watch.add('x')
    assert watch.add(items)
    assert watch.unchanged() == 2
    items[:] = after
    assert watch.unchanged() == 1


@pytest.mark.parametrize(('at', 'to'), [(0, 1), (1, 0)], ids=['first to the end', 'last to the beginning'])
def test_item_that_moves_to_the_next_container_is_seen(at: int, to: int) -> None:
    watch, items, others = Watch(), [1, 2], [3]
    assert watch.add(items)
    assert watch.add(others)
    others.insert(to, items.pop(at))
    assert watch.unchanged() == 0


@dataclass(slots=True)
class Slotted:
    name: str = 'x'


class Model(BaseModel):
    name: str = 'x'


@pytest.mark.parametrize(
    'value',
    [Slotted(), Model(), OwnReturn('tool', 'x', 'a'), {1}, Colour.RED, bytearray(b'x'), {Colour.RED: 1}],
    ids=['slots', 'model', 'subclass of an application', 'set', 'enumeration', 'bytearray', 'key'],
)
def test_what_may_change_unseen_is_not_watched(value: object) -> None:
    for whole in (value, [value], {'a': (1, value)}):
        assert not Watch().add(whole)


def test_message_that_may_change_unseen_is_encoded_and_the_others_are_not(encoded: list[ModelMessage]) -> None:
    model = Model()
    messages = [asks('x'), returns({'model': model}), *turns(4)]
    make_known(messages)
    encoded.clear()
    encode_history(messages)
    assert encoded == [messages[1]]
    model.name = 'y'
    assert encode_history(messages) == anew(messages)
    messages[1] = returns({'model': 1})
    make_known(messages)
    encoded.clear()
    encode_history(messages)
    assert encoded == []


@pytest.mark.parametrize('message', MESSAGES.values(), ids=MESSAGES)
def test_every_kind_of_message_is_encoded_as_before(message: ModelMessage) -> None:
    messages = [asks('x'), message, says('y')]
    make_known(messages)
    assert encode_history(messages) == anew(messages)


def test_only_what_is_new_is_encoded(encoded: list[ModelMessage]) -> None:
    messages: list[ModelMessage] = [asks('x')]
    for step in range(20):
        messages += [calls({'step': step}, f'call-{step}'), returns({'rows': [step]}, f'call-{step}')]
        encoded.clear()
        assert encode_history(messages).length == len(messages)
        # The new ones, and those of the step before, which are watched from now on.
        assert len(encoded) <= 5
    messages[10] = replace(messages[10], metadata={'a': 1})
    encoded.clear()
    encode_history(messages)
    assert messages[9] not in encoded
    assert messages[10] in encoded
    make_known(messages)
    encoded.clear()
    encode_history(messages)
    assert encoded == []


def test_two_histories_with_one_beginning_are_both_known(encoded: list[ModelMessage]) -> None:
    beginning = turns(4)
    one, other = [*beginning, asks('one')], [*beginning, asks('other')]
    for messages in (one, other, one, other, one, other):
        assert encode_history(messages) == anew(messages)
    encoded.clear()
    assert encode_history(one).head != encode_history(other).head
    assert encoded == []


def test_messages_that_came_by_once_are_not_held() -> None:
    messages = [copy(message) for message in turns(4)]
    last = ref(messages[-1])
    encode_history(messages)
    del messages
    gc.collect()
    assert last() is None


def test_known_histories_are_bounded() -> None:
    known = KnownHistories(100_000)
    runs = [[asks(f'{number}'), says('x' * 1000)] for number in range(40)]
    for messages in runs:
        for _ in range(3):
            known.links(messages, encode_message, history._link)  # pyright: ignore[reportPrivateUsage]
    held = known._histories  # pyright: ignore[reportPrivateUsage]
    assert 0 < held.weight <= 100_000
    assert held.get(id(runs[0][-1])) is None
    assert held.get(id(runs[-1][-1])) is not None


def test_size_of_a_known_history_follows_what_it_holds() -> None:
    known = KnownHistories(10**9)
    messages = turns(6)
    for _ in range(3):
        known.links(messages, encode_message, history._link)  # pyright: ignore[reportPrivateUsage]
    size = known._histories.weight  # pyright: ignore[reportPrivateUsage]
    for text in ('x', 'y'):
        messages[2] = asks(text)
        known.links(messages, encode_message, history._link)  # pyright: ignore[reportPrivateUsage]
    messages[2] = turns(6)[2]
    known.links(messages, encode_message, history._link)  # pyright: ignore[reportPrivateUsage]
    assert known._histories.weight == size > 6 * 4096  # pyright: ignore[reportPrivateUsage]


steps = st.lists(
    st.sampled_from(['append', 'args', 'text', 'part', 'pop', 'replace']).flatmap(
        lambda kind: st.tuples(st.just(kind), st.integers(0, 5), st.sampled_from([0, 0.0, False, '0', None, [0]]))
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_however_a_history_changes_it_is_encoded_as_it_is(changes: list[tuple[str, int, Any]]) -> None:
    messages: list[Any] = [a_response(), returns({'n': [0]}), a_response(), a_request()]
    make_known(messages)
    for kind, at, value in changes:
        message = messages[at % len(messages)]
        part = message.parts[-1] if message.parts else None
        match kind:
            case 'append':
                messages.append(returns({'n': value}, f'call-{at}'))
            case 'args':
                metadata: dict[str, Any] = message.metadata or {}
                message.metadata = metadata
                metadata.setdefault('deep', {})['n'] = value
            case 'text' if part is not None:
                part.content = 'x' if isinstance(part, TextPart) else value
            case 'part':
                message.parts.append(copy(part) if part is not None else TextPart('x'))
            case 'pop' if len(messages) > 1:
                messages.pop(at % len(messages))
            case _:
                messages[at % len(messages)] = replace(message)
        expected = anew(messages)
        history_now = encode_history(messages)
        assert history_now == expected
        assert encoded_state(history_now, messages) == snapshot_state(messages)


def test_state_of_an_encoded_history_is_that_of_its_messages() -> None:
    messages: list[ModelMessage] = []
    for message in [asks('x'), calls({}, 'a'), returns('x', 'a'), calls({}, 'b'), says('y'), returns('x', 'b')]:
        messages.append(message)
        assert encoded_state(encode_history(messages), messages) == snapshot_state(messages)
    # Another history of which only the beginning is known.
    other = [*messages[:4], returns('x', 'b')]
    assert encoded_state(encode_history(other), other) == snapshot_state(other) == 'complete'
    assert encoded_state(encode_history([]), []) == 'complete'
