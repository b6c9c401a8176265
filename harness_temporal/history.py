"""Message histories: which calls are answered, and how messages are encoded and identified. Pure.

A message is stored as the JSON that Pydantic AI's own types give, once per digest. The rule for what may be stored
(invariant 5): the JSON must read back to a message with the same JSON. Values that JSON has no form for (tuples, sets,
models) are stored as their JSON form; anything that would read back as something else is escaped or refused here, at
save, on every store alike.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import pickle
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_core import PydanticSerializationError, to_jsonable_python

from harness_temporal.errors import NotStorableError, StoreCorruptionError
from harness_temporal.known_histories import KnownHistories
from harness_temporal.pairing import KnownMatchings, Pairing, pair_calls
from harness_temporal.recent import Recent
from harness_temporal.records import EncodedHistory, HistoryLink, SnapshotState, StoredMessage
from harness_temporal.text import escape, escape_key, unescape

_MESSAGE: TypeAdapter[ModelMessage] = TypeAdapter(
    ModelMessage,
    config=ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', ser_json_inf_nan='constants', defer_build=True),
)
"""Pydantic AI's adapter, but one that keeps NaN and infinities instead of writing null."""

_ESCAPED = b'\x01'
"""First byte of a body whose strings are escaped; a plain body starts with `{`."""

_PLAIN = frozenset({str, int, float, bool, bytes, datetime, type(None)})
"""Types with nothing inside."""

_MEMO_BYTES = 32 * 1024 * 1024
_KNOWN_BYTES = 32 * 1024 * 1024


class _Memo:
    """Messages that were encoded before, found by the digest of their pickled form.

    An activity is given a run's whole history as new objects. Two messages with the same pickled form are the same to
    the last value, type and order, which equality would not tell, and pickling takes a third of the time of encoding.
    """

    def __init__(self, limit: int) -> None:
        self._messages = Recent[bytes, StoredMessage](limit, lambda message: len(message.body))
        self._lock = threading.Lock()

    def key(self, message: ModelMessage) -> bytes | None:
        """Return the key of a message, or `None` for one that holds what cannot be pickled."""
        try:
            return hashlib.sha256(pickle.dumps(message, protocol=5)).digest()
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
            return None

    def get(self, key: bytes | None) -> StoredMessage | None:
        with self._lock:
            return None if key is None else self._messages.get(key)

    def put(self, key: bytes | None, message: StoredMessage) -> None:
        with self._lock:
            if key is not None:
                self._messages.put(key, message)


_memo = _Memo(_MEMO_BYTES)
_known_histories = KnownHistories(_KNOWN_BYTES)
_known_matchings = KnownMatchings(1024)


def snapshot_state(messages: Sequence[ModelMessage]) -> SnapshotState:
    """Classify a history (step-persistence seed, "What safe to continue from means")."""
    return _state(pair_calls(messages))


def encoded_state(history: EncodedHistory, messages: Sequence[ModelMessage]) -> SnapshotState:
    """Return the `snapshot_state` of messages that `encode_history` made `history` of, by looking at what is new."""
    return _state(_known_matchings.pairing(history.links, messages))


def _state(pairing: Pairing) -> SnapshotState:
    return 'complete' if pairing.settled else 'interrupted'


def is_provider_valid(messages: Sequence[ModelMessage]) -> bool:
    """Whether a provider would take the history as it is: not empty, every call with its result."""
    return bool(messages) and snapshot_state(messages) == 'complete'


def has_response(messages: Iterable[ModelMessage]) -> bool:
    """Whether there is anything to continue from; a bare prompt is the same as starting again."""
    return any(isinstance(message, ModelResponse) for message in messages)


def encode_message(message: ModelMessage) -> StoredMessage:
    """Encode a message and make sure that it reads back.

    Raises:
        NotStorableError: Part of the message would read back as something else. The error names the part.
    """
    key = _memo.key(message)
    if (known := _memo.get(key)) is not None:
        return known
    stored = _encode(_translated(message))
    _memo.put(key, stored)
    return stored


def _encode(message: ModelMessage) -> StoredMessage:
    try:
        # No warnings: whatever they would be about is refused below, because it does not read back.
        body = _encode_escaped(message) if _needs_escape(message) else _MESSAGE.dump_json(message, warnings=False)
    except PydanticSerializationError:
        body = _encode_escaped(message)
    except _CollidingKeys:
        raise NotStorableError(_first_bad_part(message), 'two keys of a mapping are one in JSON.') from None
    if not _reads_back(body):
        raise NotStorableError(
            _first_bad_part(message), 'its value reads back from JSON as something else than was given.'
        )
    return stored_message(body)


def stored_message(body: bytes) -> StoredMessage:
    """Return the stored form of a body that `encode_message` made elsewhere."""
    return StoredMessage(hashlib.sha256(body).digest(), body)


def decode_message(body: bytes) -> ModelMessage:
    """Read a stored message.

    Raises:
        StoreCorruptionError: The body is not one that `encode_message` wrote.
    """
    escaped = body.startswith(_ESCAPED)
    try:
        message = _MESSAGE.validate_json(body[1:] if escaped else body)
    except ValidationError as error:
        raise StoreCorruptionError('message log', f'a stored message cannot be read: {error}') from error
    return cast(ModelMessage, _mapped(message, unescape, unescape)) if escaped else message


def encode_history(messages: Sequence[ModelMessage]) -> EncodedHistory:
    """Encode a whole history.

    Raises:
        NotStorableError: A message cannot be stored as it is.
    """
    return EncodedHistory(None, 0, tuple(_known_histories.links(messages, encode_message, _link)))


def link(base: bytes | None, base_length: int, messages: Iterable[StoredMessage]) -> EncodedHistory:
    """Put encoded messages on top of the history whose identity is `base`."""
    links: list[HistoryLink] = []
    parent = base
    for length, message in enumerate(messages, base_length + 1):
        links.append(_link_on(parent, length, message))
        parent = links[-1].digest
    return EncodedHistory(base, base_length, tuple(links))


def _link_on(parent: bytes | None, length: int, message: StoredMessage) -> HistoryLink:
    return HistoryLink(hashlib.sha256((parent or b'') + message.digest).digest(), parent, message, length)


def _link(last: HistoryLink | None, message: StoredMessage) -> HistoryLink:
    return _link_on(None, 1, message) if last is None else _link_on(last.digest, last.length + 1, message)


def since(history: EncodedHistory, length: int) -> EncodedHistory:
    """Return a whole history as what extends its first `length` messages."""
    if not 0 < length <= len(history.links):
        return history
    return EncodedHistory(history.links[length - 1].digest, length, history.links[length:])


def _translated(message: ModelMessage) -> ModelMessage:
    """Return the message with older retry prompts as the parts that they read back as."""
    if not any(part.part_kind == 'retry-prompt' for part in message.parts):
        return message
    read = _MESSAGE.validate_json(_MESSAGE.dump_json(message, warnings=False))
    parts = [
        new if old.part_kind == 'retry-prompt' else old for old, new in zip(message.parts, read.parts, strict=True)
    ]
    return dataclasses.replace(message, parts=cast(Any, parts))


def _reads_back(body: bytes) -> bool:
    plain = body[1:] if body.startswith(_ESCAPED) else body
    try:
        again = _MESSAGE.dump_json(_MESSAGE.validate_json(plain), warnings=False)
    except (ValidationError, PydanticSerializationError):
        return False
    # Pydantic AI writes this list, empty, beside a content that is not text yet, and not beside the text it becomes.
    no_files = b',"content_file_digests":[]'
    return again == plain or again.replace(no_files, b'') == plain.replace(no_files, b'')


class _CollidingKeys(Exception):
    """A mapping has two keys that are one in JSON, such as `1` and `'1'`."""


def _needs_escape(value: Any) -> bool:
    """Whether a plain mapping in `value` has a key that JSON or Pydantic AI would take for something else.

    Raises:
        _CollidingKeys: JSON would lose an entry.
    """
    unsafe = False
    if isinstance(value, dict):
        mapping = cast(dict[Any, Any], value)
        unsafe, items = _has_unsafe_key(mapping), cast(Iterable[Any], mapping.values())
    elif isinstance(value, list | tuple | set | frozenset):
        items = cast(Iterable[Any], value)
    else:
        items = [getattr(value, name) for name in _field_names(cast(type[Any], type(value)))]
    for item in items:
        # Every message of a history comes by here at every step, so most values are told by their type alone.
        if type(item) not in _PLAIN and _needs_escape(item):
            unsafe = True
    return unsafe


def _has_unsafe_key(mapping: dict[Any, Any]) -> bool:
    if not all(isinstance(key, str) for key in mapping):
        names = [key if isinstance(key, str) else next(iter(to_jsonable_python({key: 0}))) for key in mapping]
        if len(set(names)) < len(names):
            raise _CollidingKeys
    return any(isinstance(key, str) and (key == 'kind' or escape(key) != key) for key in mapping)


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def _encode_escaped(message: ModelMessage) -> bytes:
    try:
        return _ESCAPED + _MESSAGE.dump_json(cast(ModelMessage, _mapped(message, escape, escape_key)), warnings=False)
    except PydanticSerializationError as error:
        raise NotStorableError(_first_bad_part(message), f'it has no JSON form ({error}).') from error


def _mapped(value: Any, text: Any, key: Any) -> Any:
    """Copy `value` with every string and mapping key changed, inside plain containers and dataclasses."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {key(k) if isinstance(k, str) else k: _mapped(v, text, key) for k, v in items}
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, text, key) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for item in dataclasses.fields(value):
            old = getattr(value, item.name)
            new = _mapped(old, text, key)
            if new is not old:
                object.__setattr__(changed, item.name, new)
        return changed
    return value


def _first_bad_part(message: ModelMessage) -> str:
    for index, part in enumerate(message.parts):
        alone = (
            ModelRequest(parts=[cast(Any, part)])
            if isinstance(message, ModelRequest)
            else ModelResponse(parts=[cast(Any, part)])
        )
        try:
            _needs_escape(part)
            good = _reads_back(_MESSAGE.dump_json(alone, warnings=False))
        except (PydanticSerializationError, _CollidingKeys):
            good = False
        if not good:
            name = getattr(part, 'tool_name', None)
            return f'Part {index} ({part.part_kind}{f" of {name!r}" if name else ""}) of a {message.kind}'
    return f'A {message.kind}'
