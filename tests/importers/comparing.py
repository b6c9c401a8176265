"""A store of the peer, what the peer reads in it, and whether one of ours holds the same."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessagesTypeAdapter

from harness_temporal.importers import ImportReport, import_runs, open_source
from harness_temporal.records import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores import StepStore

UNREADABLE = 'lookalike'
"""The run that the older release cannot read back itself; see `test_data_that_looks_like_a_marker_is_kept`."""


@dataclass(frozen=True)
class PeerStore:
    backend: str
    url: str
    view: dict[str, Any]
    """What the peer reads."""

    @property
    def path(self) -> Path:
        return Path(self.url.partition(':')[2])

    @property
    def run_ids(self) -> list[str]:
        return list(self.view['runs'])

    def copied_to(self, folder: Path) -> PeerStore:
        shutil.copytree(self.path.parent, folder)
        return PeerStore(self.backend, f'{self.backend}:{folder / self.path.name}', self.view)

    async def import_into(self, target: StepStore, **options: Any) -> ImportReport:
        source = open_source(self.url)
        try:
            return await import_runs(source, target, **options)
        finally:
            await source.aclose()


@contextmanager
def without_changes(folder: Path) -> Iterator[None]:
    """Fail if a file in the folder was changed, made or removed."""
    before = digests(folder)
    yield
    assert digests(folder) == before


def digests(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob('*') if path.is_file()}


async def contents(store: StepStore, run_ids: Sequence[str]) -> dict[str, Any]:
    """Return all that the store says of these runs, with the numbers, to compare with what it says later."""
    return {
        run_id: [
            await store.get_run(run_id=run_id),
            [*map(vars, await store.list_events(run_id=run_id))],
            [*map(vars, await store.list_tool_effects(run_id=run_id))],
            [*map(vars, await store.list_snapshots(run_id=run_id, include_interrupted=True))],
        ]
        for run_id in run_ids
    }


NOTHING = [None, [], [], []]


async def assert_same(store: StepStore, peer: PeerStore, *, but: Sequence[str] = ()) -> None:
    """Compare run by run with what the peer reads."""
    listed = [run.run_id for run in await store.list_runs()]
    assert listed == [run_id for run_id in peer.view['listed'] if run_id not in but]
    for run_id, run in peer.view['runs'].items():
        if run_id in but:
            assert (await contents(store, [run_id]))[run_id] == NOTHING
            continue
        record = await store.get_run(run_id=run_id)
        assert_same_fields(run['record'], record, may_be_added={'registration_id'})
        events = await store.list_events(run_id=run_id)
        for theirs, ours in zip(run['events'], events, strict=True):
            assert_same_fields(theirs, ours, may_be_added={'idempotency_key'})
        effects = {effect.tool_call_id: effect for effect in await store.list_tool_effects(run_id=run_id)}
        assert len(effects) == len(run['effects'])
        for theirs in run['effects']:
            assert_same_fields(theirs, effects[theirs['tool_call_id']])
        unresolved = await store.list_unresolved_tool_effects(run_id=run_id)
        assert {effect.tool_call_id for effect in unresolved} == {*run['unresolved']}
        snapshots = await store.list_snapshots(run_id=run_id, include_interrupted=True)
        if not run_id.endswith(UNREADABLE):
            for theirs, ours in zip(run['snapshots'], snapshots, strict=True):
                messages = ModelMessagesTypeAdapter.validate_json(theirs['messages'])
                assert ours.messages == messages
                assert ModelMessagesTypeAdapter.dump_json(ours.messages) == ModelMessagesTypeAdapter.dump_json(messages)
                assert_same_fields({**theirs, 'messages': messages}, ours, may_be_added={'idempotency_key'})
        numbers = sorted((item.seq or 0, item.timestamp) for item in (*events, *snapshots))
        assert [time for _, time in numbers] == sorted(time for _, time in numbers)


def assert_same_fields(
    theirs: dict[str, Any] | None,
    ours: RunRecord | StepEvent | ToolEffectRecord | ContinuableSnapshot | None,
    *,
    may_be_added: Collection[str] = (),
) -> None:
    if theirs is None or ours is None:
        assert theirs is ours is None
        return
    assert theirs.keys() <= {item.name for item in fields(ours)}
    for name, value in theirs.items():
        found = getattr(ours, name)
        if name in may_be_added and value is None:
            assert found.startswith('import')
        elif isinstance(found, datetime):
            assert found.tzinfo is UTC
            assert found == datetime.fromisoformat(value)
        else:
            assert found == value
