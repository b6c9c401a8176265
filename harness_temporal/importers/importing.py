"""Write the runs of another library's store into one of ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from harness_temporal.errors import (
    DuplicateRunError,
    HarnessError,
    InvalidRunIdError,
    NotStorableError,
    RunImportError,
    ToolEffectConflictError,
)
from harness_temporal.importers.messages import RunMessages
from harness_temporal.importers.records import SnapshotRecords, run_record, step_events, tool_effects
from harness_temporal.importers.source import RunSource
from harness_temporal.ledger import advance
from harness_temporal.records import EncodedSnapshot, Record, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.protocol import StepStore, prepare

_PER_COMMIT = 200
_REFUSED = (DuplicateRunError, InvalidRunIdError, NotStorableError, ToolEffectConflictError)
"""What a store has against one run, not against all."""


@dataclass
class ImportReport:
    """What was imported, or would be; at a second import as well, which writes none of it again."""

    runs: int = 0
    events: int = 0
    snapshots: int = 0
    tool_effects: int = 0
    failures: list[RunImportError] = field(default_factory=list[RunImportError])
    """Why each of the other runs was not."""


async def import_runs(
    source: RunSource,
    target: StepStore,
    *,
    dry_run: bool = False,
    on_run: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import every run: its record, events, snapshots and tool effects, each as it is and in order.

    A run is read and checked as a whole before anything of it is written, and its record is written last. A run that
    cannot be imported is reported, and the next one goes on. Importing again, also after an import that was cut off,
    adds only what is not there yet. Only one snapshot, the run's other records and its distinct messages are in memory
    at a time.

    Args:
        source: Where the runs are. It stays open.
        target: Where to write them. It stays open.
        dry_run: Read and check only. The target is not asked anything, so what it has against a run does not show.
        on_run: Told after each run how many are done, of how many.

    Raises:
        ConfigurationError: There is no such source or target.
        StoreError: The source or the target failed, so that no run can be imported any more.
    """
    report = ImportReport()
    run_ids = await source.run_ids()
    for done, run_id in enumerate(run_ids, 1):
        try:
            await _import(source, run_id, None if dry_run else target, report)
        except RunImportError as error:
            report.failures.append(error)
        except _REFUSED as error:
            report.failures.append(_as_failure(run_id, error))
        if on_run is not None:
            on_run(done, len(run_ids))
    return report


@dataclass(frozen=True)
class _Run:
    """All of a run but its snapshots, which are read one by one."""

    run_id: str
    record: RunRecord | None
    effects: Sequence[ToolEffectRecord]
    events: Sequence[StepEvent]
    snapshots: Sequence[int]
    messages: RunMessages


async def _import(source: RunSource, run_id: str, target: StepStore | None, report: ImportReport) -> None:
    run = await _read(source, run_id)
    async with aclosing(_batches(source, run)) as batches:
        async for batch in batches:
            prepare(batch)
    if target is not None:
        await _check_target(target, run)
        async with aclosing(_batches(source, run)) as batches:
            async for batch in batches:
                await target.commit(batch)
    report.runs += 1
    report.events += len(run.events)
    report.snapshots += len(run.snapshots)
    report.tool_effects += len(run.effects)


async def _read(source: RunSource, run_id: str) -> _Run:
    fields = await source.run(run_id)
    return _Run(
        run_id,
        None if fields is None else run_record(fields, run_id=run_id),
        tool_effects(await source.tool_effects(run_id), run_id=run_id),
        step_events(await source.events(run_id), run_id=run_id),
        await source.snapshot_numbers(run_id),
        RunMessages(run_id, source.blob),
    )


async def _check_target(target: StepStore, run: _Run) -> None:
    """Find out what the target has against the run before anything of it is written."""
    known = await target.get_run(run_id=run.run_id)
    if known is not None and (run.record is None or known.registration_id != run.record.registration_id):
        raise DuplicateRunError(run.run_id)
    entries = {entry.ledger_key: entry for entry in await target.list_tool_effects(run_id=run.run_id)}
    for effect in run.effects:
        advance(entries.get(effect.ledger_key), effect)


async def _batches(source: RunSource, run: _Run) -> AsyncGenerator[Sequence[Record]]:
    """Yield the run's records in the order in which they get their numbers, and what shows that all are there last."""
    waiting: list[Record] = []
    async with aclosing(_records(source, run)) as records:
        async for record in records:
            waiting.append(record)
            if isinstance(record, EncodedSnapshot) or len(waiting) == _PER_COMMIT:
                yield waiting
                waiting = []
    if run.record is not None:
        waiting.append(run.record)
    if waiting:
        yield waiting


async def _records(source: RunSource, run: _Run) -> AsyncGenerator[Record]:
    """Yield the ledger, and then events and snapshots by their time, which is all that relates the two."""
    for effect in run.effects:
        yield effect
    events = iter(run.events)
    event = next(events, None)
    snapshots = SnapshotRecords(run.run_id)
    for number in run.snapshots:
        row = await source.snapshot(run.run_id, number)
        snapshot = snapshots.read(row.fields)
        while event is not None and event.timestamp <= snapshot.timestamp:
            yield event
            event = next(events, None)
        yield EncodedSnapshot(snapshot=snapshot, history=await run.messages.encode(row.messages))
    while event is not None:
        yield event
        event = next(events, None)


def _as_failure(run_id: str, error: HarnessError) -> RunImportError:
    failure = RunImportError(run_id, str(error))
    failure.__cause__ = error
    return failure
