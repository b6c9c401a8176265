"""A store in a folder of plain files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from harness_temporal.errors import ConfigurationError, HarnessError, StoreCorruptionError
from harness_temporal.records import ModelResponseRecord, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.file.directory import hold, hold_all
from harness_temporal.stores.file.encoding import load, number_of, parse, read_lines
from harness_temporal.stores.file.folders import STORE, Folder, folder_name
from harness_temporal.stores.file.journal import Change
from harness_temporal.stores.file.messages import NewMessages, read_histories
from harness_temporal.stores.file.run_log import EFFECTS, EVENTS, RESPONSE, RUN, RunLog
from harness_temporal.stores.file.snapshots import StoredSnapshot, read_snapshot, snapshot_numbers
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow, is_possible_run_id

T = TypeVar('T')
_THREADS = 8
_KEPT_LOGS = 32
_COUNTER = '.registered'


@dataclass(frozen=True)
class _Registered:
    run: RunRecord
    number: int
    signature: tuple[int, int]
    """Which file it was read from."""


class FileStepStore(BaseStepStore):
    """Keeps everything in plain files. Nothing touches the disk until the first use.

    A run's folder has `run.json`, `events.jsonl`, `tool_effects.jsonl`, `snapshot-keys.jsonl`, `snapshots/{seq}.json`
    and `model-response.json`; `messages/` beside the runs has each message once. The files can be read with any
    tool, but only a store may write while stores use the folder.

    One store may serve many threads and event loops, and many processes of one machine may share the folder; locks do
    not reach across a network. The work is done in worker threads. A call that is cancelled while its thread works may
    have been written, but never in part. What `commit` wrote is on disk when it returns, whatever happens to the
    machine.

    Files are readable by their owner only. Links in the folder are refused. Not on Windows.

    Args:
        directory: The folder. It is made when something is written.
        max_snapshots_per_run: How many snapshots to keep per run; `None` keeps all. Messages are kept in any case.
    """

    def __init__(self, directory: str | Path, *, max_snapshots_per_run: int | None = None) -> None:
        super().__init__(max_snapshots_per_run=max_snapshots_per_run)
        if sys.platform == 'win32':
            raise ConfigurationError(f'`{STORE}` needs file locks that Windows does not have; use `SqliteStepStore`.')
        self._path = Path(directory).absolute()
        self._logs: dict[str, RunLog] = {}
        self._logs_lock = threading.Lock()
        self._known_runs: dict[str, _Registered] = {}
        # Callers wait for their turn in the event loop, so that they take no threads from its other users.
        self._turn = RunVar[CapacityLimiter]('turn')

    async def _write(self, batch: PreparedBatch) -> None:
        await self._in_thread(lambda: self._commit(batch))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        return await self._read(run_id, lambda run: _load_file(RunRecord, run, RUN), None)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        found = [
            run
            for run in await self._in_thread(self._registered)
            if parent_run_id in (None, run.parent_run_id) and conversation_id in (None, run.conversation_id)
        ]
        return _newest(found, limit)

    async def list_events(self, *, run_id: str, after: int = 0, limit: int | None = None) -> list[StepEvent]:
        events = await self._read(run_id, lambda run: _load_lines(StepEvent, run, EVENTS, after=after), [])
        return events if limit is None else events[: max(0, limit)]

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        stored = await self._read(run_id, lambda run: _load_snapshots(run, include_interrupted, newest), [])
        return await self._in_thread(lambda: self._with_messages(stored)) if stored else []

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        effects = await self.list_tool_effects(run_id=run_id)
        return next((effect for effect in reversed(effects) if effect.tool_call_id == tool_call_id), None)

    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        effects = await self._read(run_id, lambda run: _load_lines(ToolEffectRecord, run, EFFECTS), [])
        newest = {effect.ledger_key: effect for effect in effects}
        return sorted(newest.values(), key=lambda effect: effect.seq or 0)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        return [effect for effect in await self.list_tool_effects(run_id=run_id) if effect.status == 'started']

    async def get_model_response(self, *, run_id: str, key: str) -> ModelResponseRecord | None:
        response = await self._read(run_id, lambda run: _load_file(ModelResponseRecord, run, RESPONSE), None)
        return response if response is not None and response.key == key else None

    # --- in a worker thread ---

    async def _in_thread(self, work: Callable[[], T]) -> T:
        limiter = self._turn.get(None)
        if limiter is None:
            limiter = CapacityLimiter(_THREADS)
            self._turn.set(limiter)
        return await to_thread.run_sync(work, limiter=limiter)

    async def _read(self, run_id: str, work: Callable[[Folder], T], nothing: T) -> T:
        return await self._in_thread(lambda: self._read_now(run_id, work, nothing))

    def _read_now(self, run_id: str, work: Callable[[Folder], T], nothing: T) -> T:
        if not is_possible_run_id(run_id):
            return nothing
        name = folder_name(run_id)
        with hold(self._path, [name]) as held:
            return nothing if held is None else work(held.runs[name])

    def _with_messages(self, stored: Sequence[StoredSnapshot]) -> list[SnapshotRow]:
        # Not under the run's lock: what is in the message log stays as it is.
        with Folder.made_at(self._path) as root:
            histories = read_histories(root, [item.head for item in stored])
        return [
            SnapshotRow(item.snapshot, item.bodies or bodies) for item, bodies in zip(stored, histories, strict=True)
        ]

    def _registered(self) -> list[RunRecord]:
        """Return all runs in the order of `list_runs`. A file that is the same as the last time is not read again."""
        found: dict[str, _Registered] = {}
        with hold_all(self._path) as root:
            if root is None:
                return []
            for name in root.folders():
                registered = _load_registered(root, name, self._known_runs.get(name))
                if registered is not None:
                    found[name] = registered
        self._known_runs = found
        return [
            replace(item.run) for item in sorted(found.values(), key=lambda item: (item.run.started_at, item.number))
        ]

    def _commit(self, batch: PreparedBatch) -> None:
        names = {run_id: folder_name(run_id) for run_id in _run_ids(batch)}
        shared = len(names) > 1 or bool(batch.runs)
        with hold(self._path, names.values(), shared=shared, create=True) as held:
            assert held is not None  # what is not there is made
            logs = {run_id: self._take_log(name, held.runs[name]) for run_id, name in names.items()}
            try:
                changes = self._changes(batch, logs, held.root)
            except HarnessError:
                for log in logs.values():
                    log.undo()
                    self._keep_log(log)
                raise
            held.commit(changes)
            for log in logs.values():
                log.close()
                self._keep_log(log)

    def _changes(self, batch: PreparedBatch, logs: Mapping[str, RunLog], root: Folder) -> list[Change]:
        """Decide what the batch changes, and store its messages, which nothing refers to yet."""
        changes = self._register(batch.runs, logs, root)
        with NewMessages(root) as messages:
            for effect in batch.effects:
                logs[effect.run_id].record(effect)
            for event in batch.events:
                logs[event.run_id].append(event)
            for encoded in batch.snapshots:
                logs[encoded.snapshot.run_id].save(encoded, messages, self.max_snapshots_per_run)
            for response in batch.responses:
                logs[response.run_id].respond(response)
            messages.store()
        return [*changes, *(change for log in logs.values() for change in log.changes())]

    def _register(self, runs: Sequence[RunRecord], logs: Mapping[str, RunLog], root: Folder) -> list[Change]:
        """Register the runs, and return the change to the number of registered runs."""
        count = first = _count(root) if runs else 0
        for run in runs:
            count += logs[run.run_id].register(run, count + 1)
        return [Change('', _COUNTER, b'%d' % count)] if count > first else []

    def _take_log(self, name: str, run: Folder) -> RunLog:
        """Take a run's log out of those that are kept: after most errors it is not to be used again."""
        with self._logs_lock:
            log = self._logs.pop(name, None)
        log = log or RunLog(name)
        log.open(run)
        return log

    def _keep_log(self, log: RunLog) -> None:
        with self._logs_lock:
            self._logs[log.name] = log
            while len(self._logs) > _KEPT_LOGS:
                del self._logs[next(iter(self._logs))]


def _run_ids(batch: PreparedBatch) -> set[str]:
    records = (*batch.runs, *batch.effects, *batch.events, *batch.responses)
    return {record.run_id for record in records} | {encoded.snapshot.run_id for encoded in batch.snapshots}


def _load_file(make: type[T], run: Folder, name: str) -> T | None:
    content, path = run.read(name), run.path / name
    return None if content is None else load(make, parse(content, path), path)


def _load_registered(root: Folder, name: str, known: _Registered | None) -> _Registered | None:
    folder = root.within(name)
    if folder is None:
        return None
    with folder:
        stat = folder.stat(RUN)
        if stat is None:
            return None
        signature = (stat.st_ino, stat.st_mtime_ns)
        if known is not None and known.signature == signature:
            return known
        values, path = parse(folder.read(RUN) or b'', folder.path / RUN), folder.path / RUN
        return _Registered(load(RunRecord, values, path), values.get('number', 0), signature)


def _load_lines(make: type[T], run: Folder, name: str, *, after: int = 0) -> list[T]:
    path = run.path / name
    return [load(make, line, path) for line in read_lines(run, name) if number_of(line, path) > after]


def _load_snapshots(run: Folder, include_interrupted: bool, newest: int | None) -> list[StoredSnapshot]:
    found: list[StoredSnapshot] = []
    for seq in reversed(snapshot_numbers(run)):
        if newest is not None and len(found) >= newest:
            break
        stored = read_snapshot(run, seq)
        if stored is not None and (include_interrupted or stored.snapshot.state == 'complete'):
            found.append(stored)
    return found[::-1]


def _count(root: Folder) -> int:
    content = root.read(_COUNTER) or b'0'
    if not content.isdigit():
        raise StoreCorruptionError(STORE, f'{root.path / _COUNTER}: {content[:20]!r} is no number.')
    return int(content)


def _newest(runs: list[RunRecord], limit: int | None) -> list[RunRecord]:
    return runs if limit is None else runs[max(0, len(runs) - limit) :]
