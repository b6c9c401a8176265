"""Records as rows. A column has the name of the record's field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

from harness_temporal.databases.postgres.sql import Row
from harness_temporal.errors import StoreCorruptionError
from harness_temporal.records import (
    ContinuableSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    StoredMessage,
    ToolEffectRecord,
)
from harness_temporal.stores.protocol import SnapshotRow, history_of
from harness_temporal.text import escape, unescape

STORE = 'PostgresStepStore'

R = TypeVar('R', RunRecord, StepEvent, ContinuableSnapshot, ToolEffectRecord, ModelResponseRecord)


def to_json(record: R) -> dict[str, Any]:
    """Return a record as JSON that PostgreSQL reads as a row, without what is not JSON: bytes and messages."""
    return {name: _stored(getattr(record, name)) for name in _columns(type(record))}


def from_row(kind: type[R], row: Row, **given: object) -> R:
    """Return the record that a row holds; `given` are fields that have no column."""
    try:
        values = {name: _loaded(name, row[name]) for name in _columns(kind, with_bytes=True)}
        return kind(**given, **values)
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreCorruptionError(STORE, f'a {kind.__name__} cannot be read: {error}') from error


def snapshots_from_rows(rows: Sequence[Row]) -> list[SnapshotRow]:
    """Return in order the snapshots of the query `read_snapshots`."""
    links: dict[bytes, tuple[bytes | None, StoredMessage]] = {}
    for row in rows:
        if row['link'] is not None and row['link'] not in links:
            if row['body'] is None:
                raise StoreCorruptionError(STORE, f'the message {row["message"].hex()} is missing.')
            links[row['link']] = row['parent'], StoredMessage(row['message'], row['body'])
    found = sorted((row for row in rows if row['seq'] is not None), key=lambda row: row['seq'])
    return [
        SnapshotRow(from_row(ContinuableSnapshot, row, messages=[]), history_of(links, row['head'], STORE))
        for row in found
    ]


@cache
def _columns(kind: type[Any], *, with_bytes: bool = False) -> tuple[str, ...]:
    left_out = {'messages'} if with_bytes else {'messages', 'value', 'body'}
    return tuple(field.name for field in fields(kind) if field.name not in left_out)


def _stored(value: object) -> object:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        # Not as ASCII: two lone surrogates beside each other would read back as one character.
        return escape(json.dumps(cast(dict[str, str], value), ensure_ascii=False))
    return value


def _loaded(name: str, stored: Any) -> Any:
    if name == 'metadata':
        return json.loads(unescape(stored))
    return unescape(stored) if isinstance(stored, str) else stored
