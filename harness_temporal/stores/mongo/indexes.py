"""The indexes, by collection. All of them exist before the first transaction, and so do the collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo import IndexModel

_REGISTERED = ('started_at', 'registration')


def _index(*fields: str, only_with: str | None = None, unique: bool = False) -> IndexModel:
    keys = [(field, 1) for field in fields]
    if only_with is None:
        return IndexModel(keys, unique=unique)
    # What has no such field is not in the index: `None` neither takes space nor collides.
    return IndexModel(keys, unique=unique, partialFilterExpression={only_with: {'$type': 'string'}})


INDEXES: Mapping[str, Sequence[IndexModel]] = {
    'runs': [
        _index('conversation_id', *_REGISTERED, only_with='conversation_id'),
        _index('parent_run_id', *_REGISTERED, only_with='parent_run_id'),
        _index(*_REGISTERED),
    ],
    'events': [
        _index('run_id', 'seq'),
        _index('run_id', 'idempotency_key', only_with='idempotency_key', unique=True),
    ],
    'snapshots': [
        _index('run_id', 'seq'),
        _index('run_id', 'state', 'seq'),
        _index('run_id', 'idempotency_key', only_with='idempotency_key', unique=True),
    ],
    'snapshot_idempotency_keys': [_index('run_id')],
    'tool_effects': [
        _index('run_id', 'seq'),
        _index('run_id', 'status', 'seq'),
        _index('run_id', 'tool_call_id', 'seq'),
    ],
    'history_links': [_index('message')],
}
"""`message` finds what still refers to a message."""

WITHOUT_INDEX = ('counters', 'model_responses', 'messages', 'message_chunks')
"""Collections that are only asked by identity."""
