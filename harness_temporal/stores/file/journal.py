"""The write-ahead journal: what makes the changes of one batch to several files one change.

The file is also the lock under which it may be read and written. It is empty, or holds a batch that whoever takes the
lock next has to finish: every change can be made again. A journal that was cut short while it was written does not
fit its checksum, and its batch has not happened.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

from harness_temporal.disk import put_on_disk
from harness_temporal.stores.file.folders import Folder, os_errors, write_at


@dataclass(frozen=True)
class Change:
    """What becomes of one file."""

    folder: str
    """The way to its folder from the store's, with `/`; empty for the store's own."""
    name: str
    data: bytes | None
    """`None` removes the file."""
    offset: int | None = None
    """Where a file that only grows goes on; without it, the whole file is replaced."""

    @property
    def run(self) -> str:
        """The name of the run's folder."""
        return self.folder.partition('/')[0]


class Journal:
    """A journal whose lock is held."""

    def __init__(self, folder: Folder, name: str, descriptor: int) -> None:
        self._store = folder.store
        self._path = folder.path / name
        self._descriptor = descriptor

    def pending(self) -> list[Change]:
        """Return the changes of a batch that nobody finished."""
        with os_errors(self._store, self._path):
            size = os.fstat(self._descriptor).st_size
            return decode(os.pread(self._descriptor, size, 0)) if size else []

    def write(self, changes: Sequence[Change]) -> None:
        """Put the batch on disk. From here on it has happened."""
        with os_errors(self._store, self._path):
            os.ftruncate(self._descriptor, 0)
            write_at(self._descriptor, 0, _encode(changes))
            put_on_disk(self._descriptor)

    def clear(self) -> None:
        """Forget the batch. A loss of power may bring it back until this journal is written again or flushed.

        Lines that were appended since stay where they are then, but a file that was replaced since would be set back.
        """
        with os_errors(self._store, self._path):
            os.ftruncate(self._descriptor, 0)

    def flush(self) -> None:
        """Make sure that what was cleared stays cleared."""
        with os_errors(self._store, self._path):
            put_on_disk(self._descriptor)


def apply(root: Folder, changes: Iterable[Change]) -> None:
    """Make the changes, whether or not they were made before, and put them on disk."""
    for way, group in groupby(changes, key=lambda change: change.folder):
        with ExitStack() as stack:
            folder = root
            for part in way.split('/') if way else ():
                folder = stack.enter_context(folder.make(part))
            for change in group:
                if change.data is None:
                    folder.remove(change.name)
                elif change.offset is None:
                    folder.replace(change.name, change.data)
                else:
                    folder.extend(change.name, change.offset, change.data)
            folder.flush()


def decode(content: bytes) -> list[Change]:
    """Return the changes of a journal, or none if it is not complete."""
    checksum, _, rest = content.partition(b'\n')
    if checksum != _checksum(rest):
        return []
    header, _, data = rest.partition(b'\n')
    changes: list[Change] = []
    for folder, name, offset, length in json.loads(header):
        changes.append(Change(folder, name, None if length is None else data[:length], offset))
        data = data[length or 0 :]
    return changes


def _encode(changes: Sequence[Change]) -> bytes:
    header = [
        (change.folder, change.name, change.offset, None if change.data is None else len(change.data))
        for change in changes
    ]
    rest = b'\n'.join([json.dumps(header).encode(), b''.join(change.data or b'' for change in changes)])
    return b'\n'.join([_checksum(rest), rest])


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
