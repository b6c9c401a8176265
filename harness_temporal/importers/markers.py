"""Put content back that was kept outside of a message, in the forms of all releases of `pydantic-ai-harness`.

Where a message has large content, its JSON has a marker in its place: a mapping that refers to the content by its
SHA-256. The forms, from the oldest:

1. The reference is under `uri`; the content is bytes that belong under `data`, in base64.
2. The same for text, which belongs under `content`.
3. The reference is under a reserved key, and `uri` repeats it unless the mapping has a `uri` of its own. What the
   mapping has itself under a reserved key is in a mapping of escaped keys that bears a version.
4. Bytes may be marked as URL-safe base64, and a mapping that only looks like a marker is wrapped, with a version.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from harness_temporal.errors import ExternalContentError, RunImportError

Blobs: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Gives the content of a URI."""

_MARKER = '__harness_external_media__'
_TEXT = '__harness_external_text__'
_URI = '__harness_external_uri__'
_ESCAPED = '__harness_external_escaped_keys__'
_FORMAT = '__harness_external_marker_format__'
_URLSAFE = '__harness_external_urlsafe__'
_LITERAL = '__harness_external_literal__'
_RESERVED = frozenset({_MARKER, _TEXT, _URI, _ESCAPED, _FORMAT, _URLSAFE})

_URLSAFE_STAMP = 'base64-urlsafe-v1'
_ESCAPED_FAMILY = 'escaped-keys-v'
_LITERAL_FAMILY = 'literal-v'
_KNOWN_FORMATS = frozenset({f'{_ESCAPED_FAMILY}1', f'{_LITERAL_FAMILY}1'})

_Node: TypeAlias = dict[str, object]


async def restore(node: object, blobs: Blobs, *, run_id: str) -> object:
    """Return a JSON value with all content in its place.

    Raises:
        RunImportError: A wrapper is of a version that this release does not know.
        ExternalContentError: A marker is of such a version, or what `blobs` raises.
    """
    if isinstance(node, list):
        return [await restore(item, blobs, run_id=run_id) for item in cast(list[object], node)]
    if not isinstance(node, dict):
        return node
    mapping = cast(_Node, node)
    if _is_wrapper(mapping):
        _check_format(mapping[_FORMAT], run_id, uri=None)
        mapping = cast(_Node, mapping[_LITERAL])
    elif mapping.get(_MARKER) is True and (uri := _reference(mapping)) is not None:
        return await _restored(mapping, uri, blobs, run_id)
    return {key: await restore(value, blobs, run_id=run_id) for key, value in mapping.items()}


def _reference(marker: _Node) -> str | None:
    """Return what a marker refers to. A mapping that refers to nothing is data of the agent and no marker."""
    uri = marker.get(_URI, marker.get('uri'))
    return uri if isinstance(uri, str) else None


async def _restored(marker: _Node, uri: str, blobs: Blobs, run_id: str) -> _Node:
    own = {_MARKER, _TEXT}
    if _URI in marker:
        own.add(_URI)
    if marker.get('uri') == uri:
        own.add('uri')
    urlsafe = marker.get(_URLSAFE) == _URLSAFE_STAMP
    if urlsafe:
        own.add(_URLSAFE)
    escaped: _Node = {}
    if _has_escaped_keys(marker):
        _check_format(marker[_FORMAT], run_id, uri=uri)
        escaped = cast(_Node, marker[_ESCAPED])
        own |= {_FORMAT, _ESCAPED}
    content = await blobs(uri)
    kept = {key: value for key, value in marker.items() if key not in own} | escaped
    node = {key: await restore(value, blobs, run_id=run_id) for key, value in kept.items()}
    if marker.get(_TEXT) is True:
        return {**node, 'content': _text(content, run_id, uri)}
    # pydantic writes and reads the URL-safe alphabet, but a mapping of the agent's keeps the one that it came with.
    return {**node, 'data': base64.b64encode(content, altchars=b'-_' if urlsafe else None).decode('ascii')}


def _text(content: bytes, run_id: str, uri: str) -> str:
    try:
        return content.decode('utf-8', 'surrogatepass')
    except UnicodeDecodeError as error:
        raise ExternalContentError(run_id, uri, 'is referred to as text and is none.') from error


def _is_wrapper(node: _Node) -> bool:
    return (
        node.keys() == {_LITERAL, _FORMAT}
        and isinstance(node[_LITERAL], dict)
        and _is_of_family(node[_FORMAT], _LITERAL_FAMILY)
    )


def _has_escaped_keys(marker: _Node) -> bool:
    """Whether the marker's writer put keys aside; otherwise both keys are data of the agent."""
    escaped = marker.get(_ESCAPED)
    return (
        isinstance(escaped, dict)
        and bool(cast(_Node, escaped))
        and cast(_Node, escaped).keys() <= _RESERVED
        and _is_of_family(marker.get(_FORMAT), _ESCAPED_FAMILY)
    )


def _is_of_family(version: object, family: str) -> bool:
    return isinstance(version, str) and re.match(re.escape(family), version) is not None


def _check_format(version: object, run_id: str, *, uri: str | None) -> None:
    if version in _KNOWN_FORMATS:
        return
    reason = f'in the form {version!r}, which this release does not know; a newer one may.'
    if uri is not None:
        raise ExternalContentError(run_id, uri, f'is referred to {reason}')
    raise RunImportError(run_id, f'a message has data {reason}')
