"""What a batch changes, given what the database holds. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from harness_temporal.errors import DuplicateRunError
from harness_temporal.history import stored_message
from harness_temporal.ledger import advance
from harness_temporal.records import (
    EncodedHistory,
    EncodedSnapshot,
    RunRecord,
    StepEvent,
    StoredMessage,
    ToolEffectRecord,
)
from harness_temporal.stores.external import is_external
from harness_temporal.stores.mongo.documents import Document, R, name_within, to_document
from harness_temporal.stores.protocol import PreparedBatch

_LARGEST_INSIDE = 1 << 20
"""How many bytes of a value a document holds itself. A larger one is kept like a message."""


@dataclass
class Counter:
    """Numbers a run's records, and guards the run: every batch that changes something of it moves the version."""

    version: int = 0
    """0: the document is not there, and nothing else of the run is."""
    next_seq: int = 1


@dataclass
class Held:
    """What the database holds of what a batch touches, all of it at least as new as the counters."""

    counters: dict[str, Counter]
    runs: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    effects: dict[str, ToolEffectRecord] = field(default_factory=dict[str, ToolEffectRecord])
    event_keys: set[str] = field(default_factory=set[str])
    snapshot_keys: set[str] = field(default_factory=set[str])
    snapshots: dict[str, list[Document]] = field(default_factory=lambda: defaultdict[str, list[Document]](list))
    """By run the `seq` and `state` of each snapshot in order, if they are pruned."""


@dataclass
class Plan:
    """The changes of one batch: `content` and `histories` first, then the others in one transaction."""

    held: Held
    counters: dict[str, Counter] = field(default_factory=dict[str, Counter])
    """Of the runs that change, with the version that they must have, and with the number that comes next then."""
    inserts: dict[str, list[Document]] = field(default_factory=lambda: defaultdict[str, list[Document]](list))
    replacements: dict[str, dict[str, Document]] = field(
        default_factory=lambda: defaultdict[str, dict[str, Document]](dict)
    )
    deletions: dict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    content: list[StoredMessage] = field(default_factory=list[StoredMessage])
    histories: list[EncodedHistory] = field(default_factory=list[EncodedHistory])

    def touch(self, run_id: str) -> Counter:
        """Return the counter of a run that changes."""
        if run_id not in self.counters:
            self.counters[run_id] = replace(self.held.counters[run_id])
        return self.counters[run_id]

    def number(self, run_id: str) -> int:
        """Return the run's next sequence number."""
        counter = self.touch(run_id)
        counter.next_seq += 1
        return counter.next_seq - 1


def plan(batch: PreparedBatch, held: Held, *, registration: int, max_snapshots: int | None) -> Plan:
    """Work out what a batch changes. Uses up `held`.

    Raises:
        DuplicateRunError: Another run is registered under this id.
        ToolEffectConflictError: The ledger holds a state that the batch may not replace.
    """
    made = Plan(held)
    for index, run in enumerate(batch.runs):
        _register(made, run, registration + index)
    for effect in batch.effects:
        _record(made, effect)
    for event in batch.events:
        _append(made, event)
    for snapshot in batch.snapshots:
        _save(made, snapshot, max_snapshots)
    for response in batch.responses:
        made.touch(response.run_id)
        made.replacements['model_responses'][response.run_id] = _with_bytes(made, response, response.run_id, 'body')
    return made


def _register(made: Plan, run: RunRecord, registration: int) -> None:
    known = made.held.runs.get(run.run_id)
    if known is None:
        made.held.runs[run.run_id] = run
        made.touch(run.run_id)
        made.inserts['runs'].append(to_document(run, run.run_id) | {'registration': registration})
    elif run.registration_id is None or run.registration_id != known.registration_id:
        raise DuplicateRunError(run.run_id)


def _record(made: Plan, effect: ToolEffectRecord) -> None:
    identity = name_within(effect.run_id, effect.ledger_key)
    current = made.held.effects.get(identity)
    result = advance(current, effect)
    if result is None:
        return
    made.touch(effect.run_id)
    if current is None:
        result = replace(result, seq=made.number(effect.run_id))
    made.held.effects[identity] = result
    made.replacements['tool_effects'][identity] = _with_bytes(made, result, identity, 'value')


def _append(made: Plan, event: StepEvent) -> None:
    if _is_new(made.held.event_keys, event.run_id, event.idempotency_key):
        seq = made.number(event.run_id)
        made.inserts['events'].append(to_document(replace(event, seq=seq), name_within(event.run_id, seq)))


def _save(made: Plan, encoded: EncodedSnapshot, max_snapshots: int | None) -> None:
    snapshot, history = encoded.snapshot, encoded.history
    run_id, key = snapshot.run_id, snapshot.idempotency_key
    if not _is_new(made.held.snapshot_keys, run_id, key):
        return
    made.histories.append(history)
    if key is not None:
        made.inserts['snapshot_idempotency_keys'].append({'_id': name_within(run_id, key), 'run_id': run_id})
    seq = made.number(run_id)
    document = to_document(replace(snapshot, seq=seq), name_within(run_id, seq))
    document |= {'head': history.head, 'length': history.length}
    made.inserts['snapshots'].append(document)
    if max_snapshots is not None:
        made.held.snapshots[run_id].append(document)
        _prune(made, run_id, max_snapshots)


def _prune(made: Plan, run_id: str, max_snapshots: int) -> None:
    snapshots = made.held.snapshots[run_id]
    complete = [document['seq'] for document in snapshots if document['state'] == 'complete']
    kept = {*complete[-1:], *(document['seq'] for document in snapshots[-max_snapshots:])}
    pruned = [document['_id'] for document in snapshots if document['seq'] not in kept]
    made.deletions['snapshots'] += pruned
    made.inserts['snapshots'] = [document for document in made.inserts['snapshots'] if document['_id'] not in pruned]
    made.held.snapshots[run_id] = [document for document in snapshots if document['seq'] in kept]


def _is_new(keys: set[str], run_id: str, key: str | None) -> bool:
    if key is None:
        return True
    name = name_within(run_id, key)
    if name in keys:
        return False
    keys.add(name)
    return True


def _with_bytes(made: Plan, record: R, identity: str, name: str) -> Document:
    document = to_document(record, identity)
    body: bytes = document.get(name, b'')
    if len(body) > _LARGEST_INSIDE:
        stored = stored_message(document.pop(name))
        made.content.append(stored)
        document[f'{name}_digest'] = stored.digest
    elif is_external(body):
        document['external'] = True
    return document
