"""What a writer has to know of a run's files, and what a batch makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from harness_temporal.errors import DuplicateRunError
from harness_temporal.ledger import advance
from harness_temporal.records import EncodedSnapshot, ModelResponseRecord, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.file.encoding import Lines, RewrittenError, dump, load, number_of, parse
from harness_temporal.stores.file.folders import Folder
from harness_temporal.stores.file.journal import Change
from harness_temporal.stores.file.messages import NewMessages
from harness_temporal.stores.file.snapshots import SNAPSHOTS, dump_snapshot, read_snapshot, snapshot_numbers
from harness_temporal.text import escape

K = TypeVar('K')
V = TypeVar('V')
RUN, EVENTS, EFFECTS, RESPONSE = 'run.json', 'events.jsonl', 'tool_effects.jsonl', 'model-response.json'
_SNAPSHOT_KEYS = 'snapshot-keys.jsonl'


class RunLog:
    """What writing to a run needs. It is kept between writes, and reads only what others appended since.

    To be used while the run's lock is held. After a batch that was refused it goes on with `undo`; after any other
    error it is not to be used again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._reset()

    def _reset(self) -> None:
        self._events, self._effects, self._keys = Lines(EVENTS), Lines(EFFECTS), Lines(_SNAPSHOT_KEYS)
        self._next_seq = 0
        self._ledger: dict[str, ToolEffectRecord] = {}
        # As they are stored: escaped.
        self._event_keys: set[str] = set()
        self._snapshot_keys: set[str] = set()
        # Those that are there, and perhaps some that others have pruned; the state if it is known without a look.
        self._snapshots: dict[int, str | None] = {}

    def open(self, folder: Folder) -> None:
        """Start a batch: read what is new in the run's folder, whose lock is held until `close`."""
        self._folder = folder
        self._appended: dict[str, bytearray] = {}
        self._written: dict[tuple[str, str], bytes | None] = {}
        self._undo: list[Callable[[], object]] = []
        try:
            self._read()
        except RewrittenError:
            self._reset()
            self._read()

    def close(self) -> None:
        """Take note that the changes were made."""
        for lines in (self._events, self._effects, self._keys):
            if lines.name in self._appended:
                lines.wrote(self._folder, self._appended[lines.name])
        self._appended, self._written, self._undo = {}, {}, []

    def undo(self) -> None:
        """Forget the batch."""
        for step in reversed(self._undo):
            step()

    def changes(self) -> list[Change]:
        """Return what the batch changes."""
        ends = {lines.name: lines.end for lines in (self._events, self._effects, self._keys)}
        return [
            *(Change(self.name, name, bytes(data), ends[name]) for name, data in self._appended.items()),
            *(
                Change(f'{self.name}/{folder}' if folder else self.name, name, data)
                for (folder, name), data in sorted(self._written.items())
            ),
        ]

    # --- one record each ---

    def register(self, run: RunRecord, number: int) -> bool:
        """Put the run's record in its place, as the store's registration `number`; whether it was not there before."""
        content = self._written.get(('', RUN)) or self._folder.read(RUN)
        if content is None:
            self._written['', RUN] = dump({**vars(run), 'number': number})
            return True
        path = self._folder.path / RUN
        known = load(RunRecord, parse(content, path), path)
        if run.registration_id is None or run.registration_id != known.registration_id:
            raise DuplicateRunError(run.run_id)
        return False

    def record(self, effect: ToolEffectRecord) -> None:
        """Let a ledger entry go forward."""
        current = self._ledger.get(effect.ledger_key)
        result = advance(current, effect)
        if result is not None:
            result = replace(result, seq=current.seq if current else self._number())
            self._set(self._ledger, result.ledger_key, result)
            self._append(EFFECTS, dump(vars(result)))

    def append(self, event: StepEvent) -> None:
        """Append an event, unless its key was seen."""
        if self._is_new(event.idempotency_key, self._event_keys):
            self._append(EVENTS, dump({**vars(event), 'seq': self._number()}))

    def save(self, encoded: EncodedSnapshot, messages: NewMessages, bound: int | None) -> None:
        """Save a snapshot, unless its key was seen, and prune those beyond the bound."""
        snapshot = encoded.snapshot
        if not self._is_new(snapshot.idempotency_key, self._snapshot_keys):
            return
        messages.add(encoded.history)
        seq = self._number()
        # A line for every snapshot, also without a key: it tells other writers that the number is taken.
        line = {'seq': seq, 'state': snapshot.state, 'idempotency_key': snapshot.idempotency_key}
        self._append(_SNAPSHOT_KEYS, dump(line))
        self._written[SNAPSHOTS, f'{seq}.json'] = dump_snapshot(encoded, seq)
        self._set(self._snapshots, seq, snapshot.state)
        if bound is not None:
            self._prune(bound)

    def respond(self, response: ModelResponseRecord) -> None:
        """Put the latest model response in its place."""
        self._written['', RESPONSE] = dump(vars(response))

    # --- details ---

    def _read(self) -> None:
        if not self._next_seq:
            self._next_seq = 1
            for seq in snapshot_numbers(self._folder):
                self._snapshots[seq] = None
                self._count(seq)
        for line in self._keys.new(self._folder):
            _add_key(line, self._snapshot_keys)
            if 'seq' in line:
                seq = self._seq(line, _SNAPSHOT_KEYS)
                self._snapshots[seq] = line.get('state')
        for line in self._events.new(self._folder):
            _add_key(line, self._event_keys)
            self._seq(line, EVENTS)
        for line in self._effects.new(self._folder):
            effect = load(ToolEffectRecord, line, self._folder.path / EFFECTS)
            self._ledger[effect.ledger_key] = effect
            self._seq(line, EFFECTS)

    def _seq(self, line: dict[str, Any], name: str) -> int:
        seq = number_of(line, self._folder.path / name)
        self._count(seq)
        return seq

    def _count(self, seq: int) -> None:
        self._next_seq = max(self._next_seq, seq + 1)

    def _number(self) -> int:
        seq = self._next_seq
        self._undo.append(partial(setattr, self, '_next_seq', seq))
        self._next_seq += 1
        return seq

    def _is_new(self, key: str | None, seen: set[str]) -> bool:
        """Whether nothing had the key before. From now on something has."""
        if key is None:
            return True
        if (stored := escape(key)) in seen:
            return False
        seen.add(stored)
        self._undo.append(partial(seen.remove, stored))
        return True

    def _set(self, values: dict[K, V], key: K, value: V) -> None:
        undo = partial(values.__setitem__, key, values[key]) if key in values else partial(values.pop, key)
        self._undo.append(undo)
        values[key] = value

    def _append(self, name: str, line: bytes) -> None:
        self._appended.setdefault(name, bytearray()).extend(line)

    def _prune(self, bound: int) -> None:
        newest_first = sorted(self._snapshots, reverse=True)
        complete = next((seq for seq in newest_first if self._state(seq) == 'complete'), None)
        for seq in newest_first[bound:]:
            if seq != complete:
                self._written[SNAPSHOTS, f'{seq}.json'] = None
                self._undo.append(partial(self._snapshots.__setitem__, seq, self._snapshots.pop(seq)))

    def _state(self, seq: int) -> str | None:
        state = self._snapshots[seq]
        if state is None and (stored := read_snapshot(self._folder, seq)) is not None:
            state = self._snapshots[seq] = stored.snapshot.state
        return state


def _add_key(line: dict[str, Any], seen: set[str]) -> None:
    key = line.get('idempotency_key')
    if key is not None:
        seen.add(key)
