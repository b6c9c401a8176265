"""The collections and their indexes. All of them exist before the first transaction."""

from __future__ import annotations

from pymongo import IndexModel

from harness_temporal.databases.mongo import Indexes

_REGISTERED = ('started_at', 'registration')


def _index(*fields: str, only_with: str | None = None, unique: bool = False) -> IndexModel:
    keys = [(field, 1) for field in fields]
    if only_with is None:
        return IndexModel(keys, unique=unique)
    # What has no such field is not in the index: `None` neither takes space nor collides.
    return IndexModel(keys, unique=unique, partialFilterExpression={only_with: {'$type': 'string'}})


def _of_bytes(field: str) -> IndexModel:
    return IndexModel([(field, 1)], partialFilterExpression={field: {'$type': 'binData'}})


_EXTERNAL = IndexModel([('external', 1), ('_id', 1)], partialFilterExpression={'external': True})
"""Of what refers to blobs."""


INDEXES: Indexes = {
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
        _of_bytes('head'),
    ],
    'snapshot_idempotency_keys': [_index('run_id')],
    'tool_effects': [
        _index('run_id', 'seq'),
        _index('run_id', 'status', 'seq'),
        _index('run_id', 'tool_call_id', 'seq'),
        _of_bytes('value_digest'),
        _EXTERNAL,
    ],
    'model_responses': [_of_bytes('body_digest'), _EXTERNAL],
    'history_links': [_of_bytes('parent'), _of_bytes('message')],
    'messages': [_EXTERNAL],
    'counters': [],
    'message_chunks': [],
}
"""Those of bytes find what still refers to a link or message."""
