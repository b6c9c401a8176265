"""The store contract.

`StepStore` is what the rest of the package uses. A backend derives from `BaseStepStore` and implements its abstract
methods; `harness_temporal.testing` is the conformance suite that says whether it meets this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, runtime_checkable

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import (
    ConfigurationError,
    InvalidRunIdError,
    NotStorableError,
    StoreCorruptionError,
    ToolEffectConflictError,
)
from harness_temporal.history import decode_message, encode_history
from harness_temporal.identity import check_run_id
from harness_temporal.media.protocol import MediaStore
from harness_temporal.observability.observer import timed
from harness_temporal.records import (
    Batch,
    ContinuableSnapshot,
    EncodedHistory,
    EncodedSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    StoredMessage,
    ToolEffectRecord,
)
from harness_temporal.stores.externalizer import DEFAULT_THRESHOLD, Externalizer


@runtime_checkable
class StepStore(Protocol):
    """Keeps runs, their events, snapshots and tool effects.

    Every method may raise `StoreUnavailableError` (try again later) or another `StoreError` (do not). No driver error
    crosses this boundary. Reading a run that does not exist gives nothing, not an error.
    """

    async def commit(self, records: Batch) -> None:
        """Write all records of one moment in one transaction: all of them, or none.

        - A `RunRecord` is inserted. The same run again with the same `registration_id` changes nothing.
        - New ledger entries, then events, then snapshots get the run's next sequence numbers. The run need not be
          registered.
        - An event or snapshot whose idempotency key the run has seen is dropped, also after its snapshot was pruned. It
          takes no number, and its history need not be here.
        - A ledger entry goes through `ledger.advance`.
        - Messages are stored before the snapshot that refers to them can be seen.
        - Snapshots beyond `max_snapshots_per_run` are pruned: kept are the newest N, the newest of all, and the newest
          complete one.

        Raises:
            DuplicateRunError: Another run is registered under this id.
            ToolEffectConflictError: The ledger holds a state that the batch may not replace.
            HistoryMissingError: An `EncodedSnapshot` extends a history that is not here.
            NotStorableError: A value would not read back as it was given.
            InvalidRunIdError: A record's run id is not allowed.
        """
        ...

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the run's record."""
        ...

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        """Return the matching runs by `started_at`, then by registration; with `limit`, the newest ones of them.

        Filters combine with AND.
        """
        ...

    async def list_events(self, *, run_id: str, after: int = 0, limit: int | None = None) -> list[StepEvent]:
        """Return the run's events in order, those with `seq` greater than `after`, at most `limit`."""
        ...

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest snapshot; by default the newest complete one."""
        ...

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False, limit: int | None = None
    ) -> list[ContinuableSnapshot]:
        """Return the kept snapshots in order; by default the complete ones; with `limit`, the newest of them."""
        ...

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the ledger entry with this tool call id; of several, the one that was first recorded last."""
        ...

    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return all ledger entries of the run, in the order in which the calls were first recorded."""
        ...

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the entries that are `started`: their effect may or may not have happened."""
        ...

    async def get_model_response(self, *, run_id: str, key: str) -> ModelResponseRecord | None:
        """Return the run's latest recorded model response if it is the one under `key`."""
        ...

    async def register_run(self, record: RunRecord) -> None:
        """Commit one run record. See `commit`."""
        ...

    async def append_event(self, event: StepEvent) -> None:
        """Commit one event. See `commit`."""
        ...

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Commit one snapshot. See `commit`."""
        ...

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Commit one ledger entry. See `commit`."""
        ...

    async def aclose(self) -> None:
        """Release what the store itself opened. A second call does nothing."""
        ...


@dataclass
class PreparedBatch:
    """A batch that was checked and encoded, sorted by the order in which a backend has to write it."""

    runs: list[RunRecord] = field(default_factory=list[RunRecord])
    effects: list[ToolEffectRecord] = field(default_factory=list[ToolEffectRecord])
    """First among the numbered records: a conflict here means that nothing of the batch may be written."""
    events: list[StepEvent] = field(default_factory=list[StepEvent])
    snapshots: list[EncodedSnapshot] = field(default_factory=list[EncodedSnapshot])
    responses: list[ModelResponseRecord] = field(default_factory=list[ModelResponseRecord])


@dataclass(frozen=True)
class SnapshotRow:
    """A snapshot as a backend reads it: everything but the messages, and these as they are stored, in order."""

    snapshot: ContinuableSnapshot
    messages: Sequence[StoredMessage]


class BaseStepStore(ABC):
    """What every backend shares: checking, encoding, decoding and the one-record methods. Holds no query."""

    def __init__(
        self,
        *,
        max_snapshots_per_run: int | None = None,
        media_store: MediaStore | None = None,
        media_threshold_bytes: int = DEFAULT_THRESHOLD,
        keys: KeyRing | None = None,
    ) -> None:
        """Check the settings that all stores have.

        Without a media store, everything is kept in the store itself. With keys, the content of messages, tool effects,
        responses and events is encrypted, and so is what of it goes to the media store.
        """
        if max_snapshots_per_run is not None and max_snapshots_per_run < 1:
            raise ConfigurationError(f'`max_snapshots_per_run` must be at least 1, got {max_snapshots_per_run}.')
        self.max_snapshots_per_run = max_snapshots_per_run
        self._externalizer = Externalizer(media_store, media_threshold_bytes, keys)

    @property
    def media_store(self) -> MediaStore | None:
        """Where large parts are kept."""
        return self._externalizer.media_store

    # --- for a backend to implement ---

    @abstractmethod
    async def _write(self, batch: PreparedBatch) -> None:
        """Write the batch in one transaction. See `StepStore.commit`."""

    @abstractmethod
    async def get_run(self, *, run_id: str) -> RunRecord | None: ...

    @abstractmethod
    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> list[RunRecord]: ...

    @abstractmethod
    async def _read_events(self, run_id: str, *, after: int, limit: int | None) -> list[StepEvent]:
        """Return the events in order, as `list_events` does."""

    @abstractmethod
    async def _read_snapshots(self, run_id: str, *, include_interrupted: bool, newest: int | None) -> list[SnapshotRow]:
        """Return the snapshots in order; with `newest`, only that many from the end."""

    @abstractmethod
    async def _read_tool_effect(self, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest entry with this id."""

    @abstractmethod
    async def _read_tool_effects(self, run_id: str, *, unresolved: bool) -> list[ToolEffectRecord]:
        """Return the entries in order: all, or those that have no end."""

    @abstractmethod
    async def _read_model_response(self, run_id: str, key: str) -> ModelResponseRecord | None:
        """Return the run's response if it is the one under `key`."""

    @abstractmethod
    async def runs_by_id(self, *, started_before: datetime, after: str | None, limit: int) -> list[RunRecord]:
        """Return runs that started before then, in an order of their ids, from the one after `after` on."""

    @abstractmethod
    async def delete_runs(self, run_ids: Sequence[str], *, idle_since: datetime | None = None) -> bool:
        """Delete all of these runs: records, events, snapshots and their keys, tool effects, responses.

        With `idle_since`, if any of them had an event, a snapshot or a tool effect since then, nothing is deleted and
        it returns false.
        """

    @abstractmethod
    async def collect_messages(self, *, untouched_since: datetime) -> int:
        """Delete messages that no snapshot has, and return how many. Those in use since then may be spared.

        A message that is part of several histories counts for each of them that goes.
        """

    @abstractmethod
    def media_references(self) -> AsyncGenerator[str]:
        """Yield the digests of the blobs that messages, tool effects and responses refer to, some more than once.

        Raises:
            StoreSchemaError: A newer release wrote one of them.
            StoreCorruptionError: One cannot be read.
        """

    async def aclose(self) -> None:  # noqa: B027  # most stores have nothing to release
        """Release what the store itself opened."""

    # --- shared ---

    async def commit(self, records: Batch) -> None:
        """Write all records of one moment in one transaction. See `StepStore.commit`."""
        if records:
            with timed(self, 'commit'):
                await self._commit_prepared(prepare(records))

    async def list_events(self, *, run_id: str, after: int = 0, limit: int | None = None) -> list[StepEvent]:
        """Return the run's events in order, those with `seq` greater than `after`, at most `limit`."""
        restore = self._externalizer.restore_text
        return [
            event if event.error is None else replace(event, error=await restore(event.error, f'run {run_id!r}'))
            for event in await self._read_events(run_id, after=after, limit=limit)
        ]

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest snapshot; by default the newest complete one."""
        rows = await self._read_snapshots(run_id, include_interrupted=include_interrupted, newest=1)
        return await self._loaded(rows[-1]) if rows else None

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False, limit: int | None = None
    ) -> list[ContinuableSnapshot]:
        """Return the kept snapshots in order; with `limit`, the newest of them."""
        rows = await self._read_snapshots(run_id, include_interrupted=include_interrupted, newest=limit)
        return [await self._loaded(row) for row in rows]

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest ledger entry with this tool call id."""
        record = await self._read_tool_effect(run_id, tool_call_id)
        return await self._restored_effect(record) if record else None

    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return all ledger entries of the run."""
        return [await self._restored_effect(item) for item in await self._read_tool_effects(run_id, unresolved=False)]

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the entries whose effect may or may not have happened."""
        return [await self._restored_effect(item) for item in await self._read_tool_effects(run_id, unresolved=True)]

    async def get_model_response(self, *, run_id: str, key: str) -> ModelResponseRecord | None:
        """Return the run's latest recorded model response if it is the one under `key`."""
        record = await self._read_model_response(run_id, key)
        return (
            replace(record, body=await self._externalizer.restore(record.body, f'run {run_id!r}')) if record else None
        )

    async def register_run(self, record: RunRecord) -> None:
        """Commit one run record."""
        await self.commit([record])

    async def append_event(self, event: StepEvent) -> None:
        """Commit one event."""
        await self.commit([event])

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Commit one snapshot."""
        await self.commit([snapshot])

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Commit one ledger entry."""
        await self.commit([record])

    # --- bodies ---

    async def _commit_prepared(self, batch: PreparedBatch) -> None:
        """Store what is large elsewhere, encrypt, and write what refers to it after that."""

        async def write(histories: Sequence[EncodedHistory]) -> None:
            snapshots = [
                replace(item, history=history) for item, history in zip(batch.snapshots, histories, strict=True)
            ]
            await self._write(replace(stored, snapshots=snapshots))

        stored = replace(
            batch,
            effects=[await self._stored_effect(item) for item in batch.effects],
            events=[
                item if item.error is None else replace(item, error=await self._externalizer.store_text(item.error))
                for item in batch.events
            ],
            responses=[replace(item, body=await self._externalizer.store(item.body)) for item in batch.responses],
        )
        try:
            await self._externalizer.save([item.history for item in batch.snapshots], write)
        except ToolEffectConflictError as error:
            error.current = await self._restored_effect(error.current)
            raise

    async def _loaded(self, row: SnapshotRow) -> ContinuableSnapshot:
        owner = f'run {row.snapshot.run_id!r}'
        messages = [await self._externalizer.restore_message(message, owner) for message in row.messages]
        return replace(row.snapshot, messages=[decode_message(message.body) for message in messages])

    async def _stored_effect(self, record: ToolEffectRecord) -> ToolEffectRecord:
        if record.value is record.error is record.effect_summary is None:
            return record
        text = self._externalizer.store_text
        return replace(
            record,
            value=None if record.value is None else await self._externalizer.store(record.value),
            error=await text(record.error),
            effect_summary=await text(record.effect_summary),
        )

    async def _restored_effect(self, record: ToolEffectRecord) -> ToolEffectRecord:
        if record.value is record.error is record.effect_summary is None:
            return record
        owner, text = f'run {record.run_id!r}', self._externalizer.restore_text
        return replace(
            record,
            value=None if record.value is None else await self._externalizer.restore(record.value, owner),
            error=await text(record.error, owner),
            effect_summary=await text(record.effect_summary, owner),
        )


def prepare(records: Batch) -> PreparedBatch:
    """Check and encode a batch before any of it is written.

    Raises:
        InvalidRunIdError: A record's run id is not allowed.
        NotStorableError: A value would not read back as it was given.
    """
    batch = PreparedBatch()
    for record in records:
        check_run_id(record.snapshot.run_id if isinstance(record, EncodedSnapshot) else record.run_id)
        match record:
            case RunRecord():
                _check_metadata(record.metadata, 'RunRecord.metadata')
                batch.runs.append(record)
            case StepEvent():
                _check_metadata(record.metadata, 'StepEvent.metadata')
                _check_number(record.step_index, 'StepEvent.step_index')
                batch.events.append(record)
            case ToolEffectRecord():
                _check_number(record.step_index, 'ToolEffectRecord.step_index')
                _check_number(record.attempts, 'ToolEffectRecord.attempts')
                batch.effects.append(replace(record, seq=None))
            case ModelResponseRecord():
                batch.responses.append(record)
            case EncodedSnapshot():
                _check_number(record.snapshot.step_index, 'ContinuableSnapshot.step_index')
                batch.snapshots.append(record)
            case ContinuableSnapshot():
                _check_number(record.step_index, 'ContinuableSnapshot.step_index')
                history = encode_history(record.messages)
                batch.snapshots.append(EncodedSnapshot(snapshot=replace(record, messages=[]), history=history))
    return batch


def history_of(
    links: Mapping[bytes, tuple[bytes | None, StoredMessage]], head: bytes | None, store: str
) -> list[StoredMessage]:
    """Return a history in order, given each link's parent and message.

    Raises:
        StoreCorruptionError: A link is missing.
    """
    messages: list[StoredMessage] = []
    while head is not None:
        if head not in links:
            raise StoreCorruptionError(store, f'the history {head.hex()} is missing.')
        head, message = links[head]
        messages.append(message)
    return messages[::-1]


def is_possible_run_id(run_id: str) -> bool:
    """Whether any store could hold a run under this id."""
    try:
        check_run_id(run_id)
    except InvalidRunIdError:
        return False
    return True


def _check_number(number: int, where: str) -> None:
    if not 0 <= number < 2**63:
        raise NotStorableError(where, f'{number} is not between 0 and 2**63.')


def _check_metadata(metadata: object, where: str) -> None:
    if isinstance(metadata, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):  # pyright: ignore[reportUnknownVariableType]
        return
    raise NotStorableError(where, 'it must map strings to strings.')
