"""Stored records of another library, as records of ours. Only what is needed to tell them apart again is added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from harness_temporal.errors import RunImportError
from harness_temporal.importers.messages import parsed, reason_of
from harness_temporal.importers.source import Fields
from harness_temporal.records import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

T = TypeVar('T', RunRecord, StepEvent, ToolEffectRecord, ContinuableSnapshot)

_PLACE = 'run_id conversation_id parent_run_id agent_name'
_RUN = f'{_PLACE} metadata started_at registration_id'
_EVENT = f'{_PLACE} kind step_index timestamp tool_call_id tool_name error metadata idempotency_key'
_EFFECT = 'run_id tool_call_id tool_name status started_at ended_at idempotency_key effect_summary'
_SNAPSHOT = f'{_PLACE} step_index messages timestamp state idempotency_key'


def run_record(fields: Fields, *, run_id: str) -> RunRecord:
    """Return the run, with a registration that is the same at every import of it.

    Raises:
        RunImportError: The record cannot be read.
    """
    run = _read(RunRecord, _RUN, 'started_at', fields, run_id)
    if run.registration_id is not None:
        return run
    digest = hashlib.sha256(f'{run_id} {run.started_at.isoformat()}'.encode('utf-8', 'surrogatepass')).hexdigest()
    return replace(run, registration_id=f'import-{digest[:40]}')


def step_events(rows: Iterable[Fields], *, run_id: str) -> list[StepEvent]:
    """Return the events. One without a key has its place as the key: events are only ever appended.

    Raises:
        RunImportError: A record cannot be read.
    """
    events = [_read(StepEvent, _EVENT, 'timestamp', fields, run_id) for fields in rows]
    return [
        event if event.idempotency_key is not None else replace(event, idempotency_key=f'import:{place}')
        for place, event in enumerate(events)
    ]


def tool_effects(rows: Iterable[Fields], *, run_id: str) -> list[ToolEffectRecord]:
    """Return the ledger's entries.

    Raises:
        RunImportError: A record cannot be read.
    """
    return [_read(ToolEffectRecord, _EFFECT, 'started_at', fields, run_id) for fields in rows]


class SnapshotRecords:
    """Reads the snapshots of one run, in order."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._keys = dict[str, int]()

    def read(self, fields: Fields) -> ContinuableSnapshot:
        """Return a snapshot without its messages.

        One without a key has its time as the key, not its place: the snapshots before it may be pruned by the next
        import.

        Raises:
            RunImportError: The record cannot be read.
        """
        snapshot = _read(ContinuableSnapshot, _SNAPSHOT, 'timestamp', {**fields, 'messages': []}, self._run_id)
        if snapshot.idempotency_key is not None:
            return snapshot
        key = f'import:{snapshot.timestamp.isoformat()}:{snapshot.step_index}:{snapshot.state}'
        self._keys[key] = self._keys.get(key, 0) + 1
        return replace(snapshot, idempotency_key=f'{key}:{self._keys[key]}')


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def _read(kind: type[T], names: str, time: str, fields: Fields, run_id: str) -> T:
    given = {name: fields[name] for name in names.split() if fields.get(name) is not None}
    if isinstance(metadata := given.get('metadata'), str):
        # A database has as text what a file has as a mapping.
        given['metadata'] = parsed(metadata, run_id=run_id)
    if given.get('run_id') != run_id:
        raise RunImportError(run_id, f'a {kind.__name__} is of the run {given.get("run_id")!r}.')
    if time not in given:
        # Ours would have the time of the import.
        raise RunImportError(run_id, f'a {kind.__name__} has no `{time}`.')
    try:
        return _adapter(kind).validate_python(given)
    except ValidationError as error:
        raise RunImportError(run_id, f'a {kind.__name__} cannot be read: {reason_of(error)}') from error
