"""The peer's store in a folder of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from anyio import to_thread

from harness_temporal.errors import ConfigurationError, RunImportError, StoreError
from harness_temporal.importers.messages import json_of_each, parsed
from harness_temporal.importers.source import Fields, SnapshotRow

T = TypeVar('T')
_RUN, _EVENTS, _EFFECTS, _SNAPSHOTS = 'run.json', 'events.jsonl', 'tool_effects.jsonl', 'snapshots'
_OURS = '.registered'
"""What our own `FileStepStore` has at this place."""


class FileSource:
    """Reads a folder that the peer's `FileStepStore` wrote: one folder per run, and `media` with large content.

    A last line of a log that was not written to its end is left out: its writer died before it was done.
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory

    async def run_ids(self) -> Sequence[str]:
        return await _in_thread(self._run_ids)

    async def run(self, run_id: str) -> Fields | None:
        return await self._read(run_id, lambda: _json_file(run_id, self._root / run_id / _RUN))

    async def events(self, run_id: str) -> Sequence[Fields]:
        return await self._read(run_id, lambda: _lines(run_id, self._root / run_id / _EVENTS))

    async def tool_effects(self, run_id: str) -> Sequence[Fields]:
        records = await self._read(run_id, lambda: _lines(run_id, self._root / run_id / _EFFECTS))
        return list({record.get('tool_call_id'): record for record in records}.values())

    async def snapshot_numbers(self, run_id: str) -> Sequence[int]:
        return await self._read(run_id, lambda: sorted(_numbers(self._root / run_id / _SNAPSHOTS)))

    async def snapshot(self, run_id: str, number: int) -> SnapshotRow:
        path = self._root / run_id / _SNAPSHOTS / f'{number}.json'
        fields = await self._read(run_id, lambda: _json_file(run_id, path))
        if fields is None:
            raise RunImportError(run_id, f'{path.name} was removed while it was read.')
        return SnapshotRow(fields, json_of_each(fields.get('messages'), run_id=run_id))

    async def blob(self, digest: str) -> bytes | None:
        return await _in_thread(lambda: _bytes_of(self._root / 'media' / f'{digest}.bin'))

    async def aclose(self) -> None:
        return

    def _run_ids(self) -> list[str]:
        if not self._root.is_dir():
            raise ConfigurationError(f'There is no folder {str(self._root)!r}.')
        if (self._root / _OURS).exists():
            raise ConfigurationError(f'{str(self._root)!r} is a store of this package already.')
        kept = (_RUN, _EVENTS, _EFFECTS, _SNAPSHOTS)
        return sorted(run.name for run in self._root.iterdir() if any((run / name).exists() for name in kept))

    async def _read(self, run_id: str, work: Callable[[], T]) -> T:
        try:
            return await _in_thread(work)
        except StoreError as error:
            raise RunImportError(run_id, f'its files cannot be read: {error}') from error


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await to_thread.run_sync(work)
    except OSError as error:
        raise StoreError('the source folder', str(error)) from error


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _json_file(run_id: str, path: Path) -> Fields | None:
    content = _bytes_of(path)
    return None if content is None else _mapping(run_id, path, content)


def _lines(run_id: str, path: Path) -> list[Fields]:
    lines = (_bytes_of(path) or b'').split(b'\n')
    records = [_mapping(run_id, path, line) for line in lines[:-1] if line.strip()]
    try:
        # Without its line end, the last one is there only if it is there as a whole.
        return [*records, _mapping(run_id, path, lines[-1])]
    except RunImportError:
        return records


def _mapping(run_id: str, path: Path, content: bytes) -> Fields:
    value = parsed(content, run_id=run_id, where=path.name)
    if not isinstance(value, dict):
        raise RunImportError(run_id, f'{path.name} has a record that is no JSON object.')
    return cast(Fields, value)


def _numbers(snapshots: Path) -> list[int]:
    return [int(path.stem) for path in snapshots.glob('*.json') if path.stem.isdecimal()]
