"""Markers of every generation, as each release wrote them."""

from __future__ import annotations

import base64

import pytest

from harness_temporal.errors import ExternalContentError, RunImportError
from harness_temporal.importers.markers import restore

MARKER, TEXT, URI = '__harness_external_media__', '__harness_external_text__', '__harness_external_uri__'
FORMAT, ESCAPED = '__harness_external_marker_format__', '__harness_external_escaped_keys__'
URLSAFE, LITERAL = '__harness_external_urlsafe__', '__harness_external_literal__'
BYTES = b'\xfb\xff\xfe'
STANDARD, SAFE = '+//+', '-__-'
CONTENTS = {'media:bytes': BYTES, 'media:text': 'Grüße \ud800'.encode('utf-8', 'surrogatepass')}


async def restored(node: object) -> object:
    async def blob(uri: str) -> bytes:
        return CONTENTS[uri]

    return await restore(node, blob, run_id='run-1')


@pytest.mark.parametrize(
    ('marker', 'original'),
    [
        pytest.param(
            {'kind': 'binary', MARKER: True, 'uri': 'media:bytes'}, {'kind': 'binary', 'data': STANDARD}, id='oldest'
        ),
        pytest.param(
            {'part_kind': 'text', MARKER: True, TEXT: True, 'uri': 'media:text'},
            {'part_kind': 'text', 'content': 'Grüße \ud800'},
            id='oldest-text',
        ),
        pytest.param(
            {'kind': 'binary', MARKER: True, URI: 'media:bytes', 'uri': 'media:bytes'},
            {'kind': 'binary', 'data': STANDARD},
            id='mirrored',
        ),
        pytest.param(
            {'kind': 'binary', 'uri': 'own', MARKER: True, URI: 'media:bytes'},
            {'kind': 'binary', 'uri': 'own', 'data': STANDARD},
            id='own-uri',
        ),
        pytest.param(
            {'kind': 'binary', MARKER: True, URLSAFE: 'base64-urlsafe-v1', URI: 'media:bytes', 'uri': 'media:bytes'},
            {'kind': 'binary', 'data': SAFE},
            id='urlsafe',
        ),
        pytest.param(
            {'kind': 'binary', MARKER: True, URLSAFE: 'own', URI: 'media:bytes'},
            {'kind': 'binary', URLSAFE: 'own', 'data': STANDARD},
            id='own-urlsafe',
        ),
        pytest.param(
            {MARKER: True, URI: 'media:bytes', FORMAT: 'escaped-keys-v1', ESCAPED: {MARKER: 1, URI: 'own', ESCAPED: 2}},
            {MARKER: 1, URI: 'own', ESCAPED: 2, 'data': STANDARD},
            id='escaped',
        ),
        pytest.param(
            {
                MARKER: True,
                URI: 'media:bytes',
                FORMAT: 'escaped-keys-v1',
                ESCAPED: {URI: [{MARKER: True, URI: 'media:bytes'}]},
            },
            {URI: [{'data': STANDARD}], 'data': STANDARD},
            id='escaped-with-marker-inside',
        ),
        pytest.param(
            {MARKER: True, URI: 'media:bytes', FORMAT: 'escaped-keys-v2', ESCAPED: {'other': 1}},
            {FORMAT: 'escaped-keys-v2', ESCAPED: {'other': 1}, 'data': STANDARD},
            id='own-escaped-keys',
        ),
        pytest.param(
            {MARKER: True, URI: 'media:bytes', FORMAT: 'own', ESCAPED: {URI: 1}},
            {FORMAT: 'own', ESCAPED: {URI: 1}, 'data': STANDARD},
            id='own-format',
        ),
        pytest.param(
            {MARKER: True, URI: 'media:bytes', 'inner': {MARKER: True, TEXT: True, 'uri': 'media:text'}},
            {'inner': {'content': 'Grüße \ud800'}, 'data': STANDARD},
            id='nested',
        ),
        pytest.param(
            {
                LITERAL: {MARKER: True, 'uri': 'media:bytes', 'inner': {MARKER: True, 'uri': 'media:bytes'}},
                FORMAT: 'literal-v1',
            },
            {MARKER: True, 'uri': 'media:bytes', 'inner': {'data': STANDARD}},
            id='literal',
        ),
        pytest.param({LITERAL: {'a': 1}}, {LITERAL: {'a': 1}}, id='own-literal'),
        pytest.param({LITERAL: 1, FORMAT: 'literal-v9'}, {LITERAL: 1, FORMAT: 'literal-v9'}, id='own-wrapper'),
        pytest.param({MARKER: 'true', 'uri': 'x'}, {MARKER: 'true', 'uri': 'x'}, id='own-marker-key'),
        pytest.param({MARKER: True, 'uri': 7}, {MARKER: True, 'uri': 7}, id='refers-to-nothing'),
    ],
)
async def test_original_is_restored(marker: dict[str, object], original: dict[str, object]) -> None:
    assert await restored([{'parts': [marker, 1, None]}]) == [{'parts': [original, 1, None]}]


def test_alphabets_are_what_they_are_called() -> None:
    assert base64.b64decode(STANDARD) == base64.urlsafe_b64decode(SAFE) == BYTES


async def test_unknown_version_of_a_marker_is_told() -> None:
    marker = {MARKER: True, URI: 'media:bytes', FORMAT: 'escaped-keys-v10', ESCAPED: {URI: 1}}
    with pytest.raises(ExternalContentError, match="'escaped-keys-v10'") as caught:
        await restored(marker)
    assert (caught.value.run_id, caught.value.uri) == ('run-1', 'media:bytes')


async def test_unknown_version_of_a_wrapper_is_told() -> None:
    with pytest.raises(RunImportError, match="'literal-v2'") as caught:
        await restored({LITERAL: {}, FORMAT: 'literal-v2'})
    assert caught.value.run_id == 'run-1'


async def test_text_that_is_none_is_told() -> None:
    with pytest.raises(ExternalContentError, match='is referred to as text and is none'):
        await restored({MARKER: True, TEXT: True, URI: 'media:bytes'})
