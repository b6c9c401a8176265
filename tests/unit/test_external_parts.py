"""The stored form of a body whose large parts are blobs: exact in both directions, whatever the body is."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_core import to_json

from harness_temporal.errors import StoreCorruptionError, StoreSchemaError
from harness_temporal.history import encode_message
from harness_temporal.media import media_uri
from harness_temporal.stores.external import cut, is_external, parse

MARKER = {'version': 1, 'parts': [{'at': 0, 'uri': media_uri(b'x'), 'form': 'text'}]}


def restored(stored: bytes, parts: list[bytes]) -> bytes:
    return parse(stored).join({media_uri(part): part for part in parts})


@pytest.mark.parametrize('threshold', [10, 64 * 1024])
@pytest.mark.parametrize('extra', [-1, 0, 1])
@pytest.mark.parametrize('letter', ['a', 'é', '名', '🚀', '"', '\\', '\n', '\x00', '\x7f', '/'])
def test_text_is_cut_from_the_threshold_on_in_bytes(threshold: int, extra: int, letter: str) -> None:
    size = len(letter.encode())
    text = letter * ((threshold + extra) // size) + 'x' * ((threshold + extra) % size)
    assert len(text.encode()) == threshold + extra
    body = to_json({'content': text, 'small': 'y'})
    stored, parts = cut(body, threshold)
    assert [part.data for part in parts] == ([text.encode()] if extra >= 0 else [])
    assert is_external(stored) == (extra >= 0)
    assert is_external(stored) is False or restored(stored, [text.encode()]) == body


@pytest.mark.parametrize('extra', [-1, 0, 1])
def test_bytes_of_content_are_cut_as_bytes_from_the_threshold_on(extra: int) -> None:
    data = bytes(range(256)) * 4
    data = (data * 100)[: 64 * 1024 + extra]
    message = encode_message(ModelRequest(parts=[UserPromptPart([BinaryContent(data, media_type='image/png')])]))
    stored, parts = cut(message.body, 64 * 1024)
    assert [(part.data, part.media_type) for part in parts] == ([(data, 'image/png')] if extra >= 0 else [])
    if parts:
        assert len(stored) < 1000
        assert restored(stored, [data]) == message.body


@pytest.mark.parametrize('encode', [b64encode, urlsafe_b64encode])
def test_both_alphabets_of_base64_come_back(encode: object) -> None:
    data = bytes(range(256)) * 10
    assert callable(encode)
    body = b'{"data":"%b","media_type":"image/png"}' % encode(data)
    stored, [part] = cut(body, 100)
    assert part.data == data
    assert restored(stored, [data]) == body


@pytest.mark.parametrize(
    'inside',
    ['not base64 at all!' * 10, 'AAAA' * 30 + 'A', 'AAAA' * 30 + 'AB==', 'AAA\n' * 30],
    ids=['text', 'length', 'not-canonical', 'line-breaks'],
)
def test_what_only_looks_like_bytes_is_text(inside: str) -> None:
    body = to_json({'data': inside, 'media_type': 'image/png', 'kind': 'binary'})
    stored, [part] = cut(body, 20)
    assert part.data == inside.encode()
    assert restored(stored, [part.data]) == body


def test_every_large_part_is_cut_and_equal_ones_are_one_blob() -> None:
    part = ToolReturnPart('t', {'a': ['x' * 200, 'y' * 200], 'b': {'c': 'x' * 200}, 'd' * 200: 1}, tool_call_id='c')
    body = encode_message(ModelRequest(parts=[part])).body
    stored, parts = cut(body, 100)
    assert len({reference.uri for reference in parse(stored).references}) == 3
    assert len(parse(stored).references) == 4
    assert restored(stored, [item.data for item in parts]) == body


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_come_back(body: bytes, threshold: int) -> None:
    for given_body in (body, b'\x02' + body, b'\x03' + body, b'"' + body + b'"'):
        stored, parts = cut(given_body, threshold)
        assert is_external(stored) == (bool(parts) or given_body.startswith((b'\x02', b'\x03')))
        assert (restored(stored, [part.data for part in parts]) if is_external(stored) else stored) == given_body


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=60)
    | st.binary(max_size=40).map(b64encode).map(bytes.decode),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(max_size=60) | st.sampled_from(['data', 'media_type', 'kind']), children, max_size=4)
    ),
)


@given(_JSON, st.integers(1, 40), st.booleans())
def test_any_json_comes_back(value: object, threshold: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode('utf-8', 'surrogatepass')
    stored, parts = cut(body, threshold)
    assert (restored(stored, [part.data for part in parts]) if parts else stored) == body


def test_user_data_that_looks_like_the_form_is_not_taken_for_it() -> None:
    looks_like_it = '\x02' + json.dumps(MARKER) + '\n'
    body = encode_message(ModelRequest(parts=[UserPromptPart(looks_like_it), ToolReturnPart('t', MARKER, 'c')])).body
    assert cut(body, 64 * 1024) == (body, [])


@pytest.mark.parametrize(
    ('stored', 'error', 'says'),
    [
        (b'\x02', StoreCorruptionError, 'cannot be read'),
        (b'\x02{}\n', StoreCorruptionError, 'version'),
        (b'\x02[]\nrest', StoreCorruptionError, 'cannot be read'),
        (b'\x02{"version":1}\n', StoreCorruptionError, 'parts'),
        (b'\x02{"version":3,"parts":[]}\n', StoreSchemaError, '3'),
        (b'\x02{"version":"1","parts":[]}\n', StoreSchemaError, "'1'"),
        (b'\x02{"version":1,"parts":[{"at":9}]}\nrest', StoreCorruptionError, 'uri'),
        (b'\x02{"version":1,"parts":[{"at":9,"uri":"x","form":"text"}]}\nrest', StoreCorruptionError, "'x'"),
        (f'\x02{json.dumps(MARKER).replace("text", "hex")}\nrest'.encode(), StoreCorruptionError, 'fit'),
        (f'\x02{json.dumps(MARKER).replace(": 0", ": 5")}\nrest'.encode(), StoreCorruptionError, 'fit'),
    ],
)
def test_what_is_damaged_or_newer_is_refused(stored: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse(stored)


def test_the_form_is_pinned() -> None:
    stored, _ = cut(b'{"content":"%b","file":{"data":"AAAAAAAAAAAAAAAA","media_type":"image/png"}}' % (b'x' * 16), 12)
    assert stored == (
        b'\x02{"version":1,"parts":['
        b'{"at":12,"uri":"media+sha256://9c5729595fb287cc2a2256280448bbe706c0a866f0372515c7483de2af4e6532","form":"text"},'
        b'{"at":30,"uri":"media+sha256://15ec7bf0b50732b49f8228e07d24365338f9e3ab994b00af08e5a3bffe55fd8b","form":"base64url"}]}\n'
        b'{"content":"","file":{"data":"","media_type":"image/png"}}'
    )
