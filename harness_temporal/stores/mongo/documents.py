"""Records as documents. A field has the name of the record's field; one that is `None` is left out.

No value of a user becomes a BSON document or field name: mappings are JSON text, and text is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from harness_temporal.errors import StoreCorruptionError
from harness_temporal.records import (
    ContinuableSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
    from_microseconds,
    to_microseconds,
)
from harness_temporal.text import escape, unescape

STORE = 'MongoStepStore'

Document: TypeAlias = dict[str, Any]
R = TypeVar('R', RunRecord, StepEvent, ContinuableSnapshot, ToolEffectRecord, ModelResponseRecord)

_TIMES = ('started_at', 'ended_at', 'timestamp')


def name_within(run_id: str, part: object) -> str:
    """Return the identity of something of a run. No run id has a slash."""
    return f'{run_id}/{escape(str(part))}'


def to_document(record: R, identity: str) -> Document:
    """Return a record as a document, without messages."""
    values = {name: getattr(record, name) for name in _fields(type(record))}
    return {'_id': identity} | {name: _stored(value) for name, value in values.items() if value is not None}


def from_document(kind: type[R], document: Mapping[str, Any], **given: object) -> R:
    """Return the record that a document holds; `given` are fields that it does not hold."""
    try:
        return kind(**given, **{name: _loaded(name, document.get(name)) for name in _fields(kind)})
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise StoreCorruptionError(STORE, f'a {kind.__name__} cannot be read: {error}') from error


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != 'messages')


def _stored(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, datetime):
        # A date of BSON has milliseconds.
        return to_microseconds(value)
    if isinstance(value, dict):
        # Not as ASCII: two lone surrogates beside each other would read back as one character.
        return escape(json.dumps(cast(dict[str, str], value), ensure_ascii=False))
    return value


def _loaded(name: str, stored: Any) -> Any:
    if stored is None:
        return None
    if name in _TIMES:
        return from_microseconds(stored)
    if name == 'metadata':
        return json.loads(unescape(stored))
    return unescape(stored) if isinstance(stored, str) else stored
