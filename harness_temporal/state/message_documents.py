"""Messages as they are in a state's document: plain JSON, unless that would read back as something else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_core import PydanticSerializationError, from_json, to_json

from harness_temporal.errors import NotStorableError, StoreCorruptionError
from harness_temporal.history import decode_message, encode_message

_ESCAPE = b'\x01'
_ESCAPED = 'escaped'
"""`kind` of a message whose plain JSON would read back as another message; see `harness_temporal.history`."""


def encode_messages(value: Any) -> tuple[bytes, ...]:
    """Encode messages, or what was parsed from their documents.

    Raises:
        ValueError: It is no sequence of messages, or JSON cannot give one of them back.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError('must be a sequence of messages.')
    return tuple(_encode(message) for message in cast(Iterable[Any], value))


def message_document(body: bytes) -> Any:
    """Return the document of an encoded message."""
    if body.startswith(_ESCAPE):
        return {'kind': _ESCAPED, 'message': from_json(body[1:])}
    return from_json(body)


def _encode(message: Any) -> bytes:
    if not isinstance(message, ModelRequest | ModelResponse):
        message = _parsed_message(message)
    try:
        body = encode_message(message).body
    except NotStorableError as error:
        raise ValueError(str(error)) from error
    try:
        from_json(body.removeprefix(_ESCAPE), allow_inf_nan=False)
    except ValueError:
        raise ValueError(f'a {message.kind} holds a number that JSON does not have (NaN or an infinity).') from None
    return body


def _parsed_message(item: Any) -> ModelMessage:
    if not isinstance(item, Mapping):
        raise ValueError('an item is not a message.')
    document = cast(Mapping[str, Any], item)
    try:
        if document.get('kind') == _ESCAPED:
            return decode_message(_ESCAPE + to_json(document.get('message')))
        return decode_message(to_json(document))
    except (StoreCorruptionError, PydanticSerializationError) as error:
        raise ValueError('an item is not a message.') from error
