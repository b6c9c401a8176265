"""Notices that the source of agents changed."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

_NOT_SOURCES: Final = frozenset({'node_modules', '__pycache__'})


class Sources:
    """The Python files of a folder, but for hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._times()

    def changed(self) -> Path | None:
        """Return a file that is new, gone or changed since the last call."""
        seen, self._seen = self._seen, self._times()
        different = seen.items() ^ self._seen.items()
        return min((Path(path).relative_to(self._folder) for path, _ in different), default=None)

    def _times(self) -> dict[str, int]:
        return dict(_files(str(self._folder)))


def _files(folder: str) -> Generator[tuple[str, int]]:
    try:
        entries = [*os.scandir(folder)]
    except OSError:
        # It went away meanwhile, or is not ours to read.
        return
    if any(entry.name == 'pyvenv.cfg' for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith('.') or entry.name in _NOT_SOURCES:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith('.py'):
                yield entry.path, entry.stat().st_mtime_ns
        except FileNotFoundError:
            continue
