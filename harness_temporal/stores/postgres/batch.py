"""A batch as the arguments of `commit_batch`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness_temporal.errors import DuplicateRunError
from harness_temporal.ledger import advance
from harness_temporal.records import (
    EncodedHistory,
    EncodedSnapshot,
    HistoryLink,
    RunRecord,
    StoredMessage,
    ToolEffectRecord,
)
from harness_temporal.stores.postgres.beliefs import LedgerEntry, LedgerKey, ledger_key
from harness_temporal.stores.postgres.rows import to_json
from harness_temporal.stores.protocol import PreparedBatch
from harness_temporal.text import escape


@dataclass(frozen=True)
class Commit:
    """A batch that is ready to be sent, and what it makes of the ledger."""

    document: str
    content: bytes
    entries: list[LedgerEntry]


Row: TypeAlias = dict[str, Any]
"""A row as JSON."""


class Content:
    """All bytes of a batch in a row."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._messages: dict[bytes, Row] = {}

    def place(self, value: bytes | None) -> Row:
        """Add bytes and say where they are, as PostgreSQL counts."""
        if value is None:
            return {'start': None, 'length': None}
        self.data += value
        return {'start': len(self.data) - len(value) + 1, 'length': len(value)}

    def place_once(self, message: StoredMessage) -> Row:
        """Add a message unless it is there, and say where it is."""
        if message.digest not in self._messages:
            self._messages[message.digest] = {'digest': _hex(message.digest)} | self.place(message.body)
        return self._messages[message.digest]


def encode(
    batch: PreparedBatch,
    entries: Mapping[LedgerKey, LedgerEntry | None],
    known_length: Callable[[EncodedHistory], int],
) -> Commit:
    """Encode a batch, given the ledger's entries and how much of a history need not be sent.

    Raises:
        DuplicateRunError: The batch itself registers two runs under one id.
        ToolEffectConflictError: An entry may not be replaced.
    """
    runs, content = _distinct(batch.runs), Content()
    changed = _advanced(batch.effects, entries)
    run_ids = {record.run_id for record in (*batch.runs, *batch.effects, *batch.events, *batch.responses)}
    run_ids |= {encoded.snapshot.run_id for encoded in batch.snapshots}
    # Of a run's responses only the last is kept.
    responses = {response.run_id: response for response in batch.responses}
    document = {
        'run_ids': sorted(run_ids),
        'runs': [to_json(run) for run in runs.values()],
        'expected': [
            row | {'revision': entry.revision if entry else None}
            for row, entry in zip(ledger_rows(entries), entries.values(), strict=True)
        ],
        'effects': [_effect(entry, content) for entry in changed],
        'events': [to_json(event) for event in batch.events],
        'snapshots': [_snapshot(encoded, known_length(encoded.history), content) for encoded in batch.snapshots],
        'responses': [to_json(response) | content.place(response.body) for response in responses.values()],
    }
    return Commit(json.dumps(document, ensure_ascii=False), bytes(content.data), changed)


def ledger_rows(keys: Iterable[LedgerKey]) -> list[Row]:
    """Return the keys of ledger entries as JSON."""
    return [{'run_id': run_id, 'ledger_key': escape(ledger_key)} for run_id, ledger_key in keys]


def is_repeatable(batch: PreparedBatch) -> bool:
    """Whether writing the batch twice is the same as writing it once."""
    return (
        all(run.registration_id is not None for run in batch.runs)
        and all(event.idempotency_key is not None for event in batch.events)
        and all(encoded.snapshot.idempotency_key is not None for encoded in batch.snapshots)
    )


def _distinct(runs: Iterable[RunRecord]) -> dict[str, RunRecord]:
    distinct: dict[str, RunRecord] = {}
    for run in runs:
        known = distinct.setdefault(run.run_id, run)
        if known is not run and (run.registration_id is None or run.registration_id != known.registration_id):
            raise DuplicateRunError(run.run_id)
    return distinct


def _advanced(
    effects: Iterable[ToolEffectRecord], entries: Mapping[LedgerKey, LedgerEntry | None]
) -> list[LedgerEntry]:
    """Return the entries that change."""
    revision = secrets.token_hex(8)
    changed: dict[LedgerKey, LedgerEntry] = {}
    for effect in effects:
        key = ledger_key(effect)
        current = changed.get(key) or entries[key]
        result = advance(current.record if current else None, effect)
        if result is not None:
            changed[key] = LedgerEntry(result, revision)
    return list(changed.values())


def _effect(entry: LedgerEntry, content: Content) -> Row:
    row = to_json(entry.record) | {'ledger_key': escape(entry.record.ledger_key), 'revision': entry.revision}
    return row | content.place(entry.record.value)


def _snapshot(encoded: EncodedSnapshot, known_length: int, content: Content) -> Row:
    return to_json(encoded.snapshot) | history_row(encoded.history, known_length, content)


def history_row(history: EncodedHistory, known_length: int, content: Content) -> Row:
    """Return a history as JSON: its end, and what comes after its first `known_length` links."""
    links = history.links[known_length:]
    return {
        'head': _hex(history.head),
        'length': history.length,
        'messages': [content.place_once(link.message) for link in links],
        'links': [_link(link) for link in links],
    }


def _link(link: HistoryLink) -> Row:
    message = _hex(link.message.digest)
    return {'digest': _hex(link.digest), 'parent': _hex(link.parent), 'message': message, 'length': link.length}


def _hex(digest: bytes | None) -> str | None:
    """Return bytes as PostgreSQL reads them from text."""
    return None if digest is None else f'\\x{digest.hex()}'
