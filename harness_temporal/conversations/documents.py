"""The metadata of a conversation as stored text, and the text by which it is found. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from datetime import datetime
from typing import Any, cast, get_args

from harness_temporal.conversations.records import (
    SCHEMA_VERSION,
    ConversationOutcome,
    ConversationSummary,
    TitleSource,
)
from harness_temporal.conversations.text import searchable
from harness_temporal.errors import NotStorableError, StoreCorruptionError, StoreSchemaError
from harness_temporal.records import from_microseconds, to_microseconds
from harness_temporal.text import escape, unescape

_FIELDS = tuple(field.name for field in fields(ConversationSummary))
_TEXTS = ('id', 'workspace', 'title', 'subtitle')
_OPTIONAL_TEXTS = ('model', 'run_id')
_TIMES = ('updated_at', 'busy_until')
_NUMBERS = ('revision', 'naming_version', 'named_revision', 'message_count', 'total_tokens', 'naming_tokens')
_LARGEST_PID = 2**31


def head_key(conversation_id: str) -> bytes:
    """Return what a head is found by: of one size for ids of any length, and never taken for anything else."""
    return hashlib.sha256(conversation_id.encode('utf-8', 'surrogatepass')).digest()


def check_summary(summary: ConversationSummary) -> None:
    """Check that a summary reads back as it is.

    Raises:
        NotStorableError: A field has a value that it cannot have.
    """
    wrong = _wrong_field(summary)
    if wrong is not None:
        raise NotStorableError(f'ConversationSummary.{wrong}', f'it cannot be {getattr(summary, wrong)!r}.')


def dump_summary(summary: ConversationSummary) -> str:
    """Return a summary as text that every database takes."""
    # Not as ASCII: two lone surrogates beside each other would read back as one character.
    return escape(json.dumps({name: _stored(getattr(summary, name)) for name in _FIELDS}, ensure_ascii=False))


def load_summary(stored: str, store: str) -> ConversationSummary:
    """Read a stored summary.

    Raises:
        StoreSchemaError: A newer release wrote it.
        StoreCorruptionError: It is damaged.
    """
    try:
        values: dict[str, Any] = json.loads(unescape(stored))
        version = values['schema_version']
        if version == SCHEMA_VERSION:
            return _loaded(values)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise StoreCorruptionError(store, f'the metadata of a conversation cannot be read: {error}.') from error
    raise StoreSchemaError(
        store, f'the metadata of conversation {values.get("id")!r} has version {version!r}; this release knows 1.'
    )


def metadata_text(summary: ConversationSummary) -> str:
    """Return what a search looks through beside the messages."""
    parts = (summary.title, summary.subtitle, *summary.tags, summary.workspace, summary.model or '', summary.id)
    return searchable('\n'.join(parts))


def metadata_columns(summary: ConversationSummary) -> dict[str, str]:
    """Return what is stored of a summary, by column."""
    return {'metadata': dump_summary(summary), 'metadata_text': metadata_text(summary)}


def _loaded(values: dict[str, Any]) -> ConversationSummary:
    for name in _TIMES:
        values[name] = None if values[name] is None else from_microseconds(values[name])
    values['tags'] = (*values['tags'],)
    summary = ConversationSummary(**values)
    wrong = _wrong_field(summary)
    if wrong is not None:
        raise ValueError(f'`{wrong}` is {getattr(summary, wrong)!r}')
    return summary


def _stored(value: object) -> object:
    return to_microseconds(value) if isinstance(value, datetime) else value


def _wrong_field(summary: ConversationSummary) -> str | None:
    """Return the first field that has a value of another kind than it is declared with."""
    values: dict[str, Any] = {name: getattr(summary, name) for name in _FIELDS}
    tags: Any = values['tags']
    fine = {
        'schema_version': values['schema_version'] == SCHEMA_VERSION,
        'tags': isinstance(tags, tuple) and all(isinstance(tag, str) for tag in cast(tuple[Any, ...], tags)),
        'title_source': values['title_source'] in get_args(TitleSource),
        'outcome': values['outcome'] in get_args(ConversationOutcome),
        'owner_pid': values['owner_pid'] is None or _is_number(values['owner_pid'], 1, _LARGEST_PID),
        **{name: isinstance(values[name], str) for name in _TEXTS},
        **{name: isinstance(values[name], str | None) for name in _OPTIONAL_TEXTS},
        **{name: _is_number(values[name], 0, 2**63) for name in _NUMBERS},
    }
    return next((name for name, is_fine in fine.items() if not is_fine), None)


def _is_number(value: object, least: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end
