"""A store in a folder of plain files."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import ConfigurationError, HarnessError, StoreCorruptionError
from harness_temporal.media.disk import DiskMediaStore
from harness_temporal.records import ModelResponseRecord, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.external import digests_in
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, MediaStoreChoice
from harness_temporal.stores.file.directory import hold, hold_all
from harness_temporal.stores.file.encoding import load, number_of, parse, read_lines
from harness_temporal.stores.file.folders import MEDIA, MESSAGES, STORE, Folder, folder_name
from harness_temporal.stores.file.journal import Change
from harness_temporal.stores.file.messages import NewMessages, collect, message_bodies, read_histories, reading
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
        media_store: Where large parts are kept; by default in `media/` of the folder, with `None` in the messages.
        media_threshold_bytes: How large a binary or text part has to be for that.
        keys: Encrypt content with the newest of these; needs the extra `crypto`. See `BaseStepStore` for what that is.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_snapshots_per_run: int | None = None,
        media_store: MediaStoreChoice = 'default',
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        self._path = Path(directory).absolute()
        super().__init__(
            max_snapshots_per_run=max_snapshots_per_run,
            media_store=DiskMediaStore(self._path / MEDIA) if media_store == 'default' else media_store,
            media_threshold_bytes=media_threshold_bytes,
            keys=keys,
        )
        if sys.platform == 'win32':
            raise ConfigurationError(f'`{STORE}` needs file locks that Windows does not have; use `SqliteStepStore`.')
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

    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        events = await self._read(run_id, lambda run: _load_lines(StepEvent, run, EVENTS, after=after), [])
        return events if limit is None else events[: max(0, limit)]

    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        return await self._in_thread(lambda: self._read_snapshots_now(run_id, include_interrupted, newest))

    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        effects = await self._read_tool_effects(run_id, unresolved=False)
        return next((effect for effect in reversed(effects) if effect.tool_call_id == tool_call_id), None)

    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        effects = await self._read(run_id, lambda run: _load_lines(ToolEffectRecord, run, EFFECTS), [])
        newest = {effect.ledger_key: effect for effect in effects}
        found = sorted(newest.values(), key=lambda effect: effect.seq or 0)
        return [effect for effect in found if effect.status == 'started' or not unresolved]

    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        response = await self._read(run_id, lambda run: _load_file(ModelResponseRecord, run, RESPONSE), None)
        return response if response is not None and response.key == key else None

    # --- retention ---

    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        runs = [run for run in await self._in_thread(self._registered) if run.started_at < started_before]
        later = [run for run in runs if after is None or run.run_id > after]
        return sorted(later, key=lambda run: run.run_id)[:limit]

    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        return await self._in_thread(lambda: self._delete_runs(run_ids, idle_since))

    async def collect_messages(self, *, untouched_since: datetime) -> int:
        return await self._in_thread(lambda: self._collect(untouched_since))

    async def media_references(self) -> AsyncGenerator[str]:
        for bodies in (self._message_bodies, self._run_bodies):
            for digest in await self._in_thread(lambda bodies=bodies: {*_digests(bodies())}):
                yield digest

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

    def _read_snapshots_now(self, run_id: str, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        root = Folder.at(STORE, self._path)
        if root is None:
            return []
        # The run's lock is given back before its messages are read: they stay as they are.
        with root, reading(root):
            stored = self._read_now(run_id, lambda run: _load_snapshots(run, include_interrupted, newest), [])
            histories = read_histories(root, [item.head for item in stored])
        return [
            SnapshotRow(item.snapshot, item.messages or messages)
            for item, messages in zip(stored, histories, strict=True)
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

    def _delete_runs(self, run_ids: Sequence[str], idle_since: datetime | None) -> bool:
        names = [folder_name(run_id) for run_id in run_ids if is_possible_run_id(run_id)]
        with ExitStack() as stack:
            root = Folder.at(STORE, self._path)
            if root is None:
                return True
            stack.enter_context(root)
            there = [name for name in names if root.stat(name)]
            held = stack.enter_context(hold(self._path, there, shared=True)) if there else None
            if held is None:
                return True
            if idle_since is not None and any(_is_active(run, idle_since) for run in held.runs.values()):
                return False
            for name in held.runs:
                held.root.remove_within(name)
        return True

    def _collect(self, untouched_since: datetime) -> int:
        with hold_all(self._path) as root:
            if root is None:
                return 0
            root.remove_leftovers()
            names = root.folders()
        heads: list[bytes] = []
        for name in names:
            # Under its lock, so that what a writer that died left to finish is finished first.
            with hold(self._path, [name]) as held:
                if held is not None and name not in (MESSAGES, MEDIA):
                    stored = _load_snapshots(held.runs[name], True, None)
                    heads += [item.head for item in stored if item.head is not None]
        with Folder.made_at(STORE, self._path) as root:
            return collect(root, heads, untouched_since)

    def _message_bodies(self) -> Iterator[bytes]:
        with Folder.made_at(STORE, self._path) as root:
            yield from message_bodies(root)

    def _run_bodies(self) -> Iterator[bytes]:
        with hold_all(self._path) as root:
            names = root.folders() if root is not None else []
        for name in names:
            with hold(self._path, [name]) as held:
                if held is None or name in (MESSAGES, MEDIA):
                    continue
                run = held.runs[name]
                yield from (
                    item.value for item in _load_lines(ToolEffectRecord, run, EFFECTS) if item.value is not None
                )
                response = _load_file(ModelResponseRecord, run, RESPONSE)
                if response is not None:
                    yield response.body

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


def _digests(bodies: Iterable[bytes]) -> Iterator[str]:
    for body in bodies:
        yield from digests_in(body)


def _is_active(run: Folder, since: datetime) -> bool:
    record = _load_file(RunRecord, run, RUN)
    effects = _load_lines(ToolEffectRecord, run, EFFECTS)
    return any(
        moment >= since
        for moment in (
            *([record.started_at] if record else []),
            *(event.timestamp for event in _load_lines(StepEvent, run, EVENTS)),
            *(item.snapshot.timestamp for item in _load_snapshots(run, True, None)),
            *(effect.ended_at or effect.started_at for effect in effects),
        )
    )


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
