"""Reading everything in a store, to find what is missing or damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from harness_temporal.errors import MediaNotFoundError, StoreCorruptionError, StoreSchemaError
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import uri_of
from harness_temporal.records import RunRecord
from harness_temporal.stores.protocol import BaseStepStore

_PAGE: Final = 200
_EVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass
class StoreCheck:
    """What is in a store, and what is wrong with it."""

    runs: int = 0
    events: int = 0
    snapshots: int = 0
    tool_effects: int = 0
    unresolved: int = 0
    """Tool effects whose outcome nobody recorded. They wait for a person and are no damage."""
    blobs: int = 0
    bytes: int = 0
    """Of the blobs."""
    problems: list[str] = field(default_factory=list[str])


async def check_store(store: BaseStepStore, *, on_checked: Callable[[str, int], None] | None = None) -> StoreCheck:
    """Load every snapshot, ledger value and blob, and verify every message and blob against its digest.

    Runs that come or go meanwhile may be missing. Memory holds one run's snapshots at a time, and the digests of blobs.

    Args:
        store: The store. Nothing in it is changed.
        on_checked: Told how many `runs`, and later `blobs`, are checked so far.

    Raises:
        StoreUnavailableError: The store cannot be reached, so that nothing can be said of it.
    """
    check = StoreCheck()
    last: str | None = None
    while page := await store.runs_by_id(started_before=_EVER, after=last, limit=_PAGE):
        last = page[-1].run_id
        for run in page:
            await _check_run(store, run, check)
            if on_checked is not None:
                on_checked('runs', check.runs)
    if isinstance(store.media_store, BaseMediaStore):
        await _check_blobs(store, store.media_store, check, on_checked)
    return check


async def _check_run(store: BaseStepStore, run: RunRecord, check: StoreCheck) -> None:
    check.runs += 1
    try:
        check.events += len(await store.list_events(run_id=run.run_id))
        check.snapshots += len(await store.list_snapshots(run_id=run.run_id, include_interrupted=True))
        effects = await store.list_tool_effects(run_id=run.run_id)
    except (StoreCorruptionError, StoreSchemaError) as error:
        check.problems.append(f'run {run.run_id!r}: {error}')
        return
    check.tool_effects += len(effects)
    check.unresolved += sum(effect.status == 'started' for effect in effects)


async def _check_blobs(
    store: BaseStepStore, media: BaseMediaStore, check: StoreCheck, on_checked: Callable[[str, int], None] | None
) -> None:
    digests = [blob.digest async for blob in media.blobs()]
    for digest in digests:
        try:
            async with media.open(uri_of(digest)) as pieces:
                async for piece in pieces:
                    check.bytes += len(piece)
        except MediaNotFoundError:
            # It was collected since the list was read. Whether somebody needs it is seen below.
            continue
        except StoreCorruptionError as error:
            check.problems.append(str(error))
        check.blobs += 1
        if on_checked is not None:
            on_checked('blobs', check.blobs)
    known = {*digests}
    try:
        async for digest in store.media_references():
            if digest not in known and not await media.exists(uri_of(digest)):
                check.problems.append(f'the blob {uri_of(digest)} is missing.')
            known.add(digest)
    except (StoreCorruptionError, StoreSchemaError) as error:
        check.problems.append(str(error))
