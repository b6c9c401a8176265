"""Notebooks as folders of Markdown files that a person may read and edit."""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import re
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from harness_temporal.errors import InvalidNoteNameError, NoteTooLargeError, StoreCorruptionError
from harness_temporal.memory.notes import (
    NOTE_BYTES,
    OPERATIONS_KEPT,
    Edit,
    Glance,
    Note,
    Notebook,
    check_note_name,
    edited,
    revision_of,
)
from harness_temporal.memory.protocol import PAGE, MemoryStore
from harness_temporal.stores.file.folders import Folder
from harness_temporal.stores.file.journal import Change, Journal, apply

STORE: Final = 'FileMemoryStore'
_NOTE = '.md'
_JOURNAL = '.journal'
_OPERATIONS = '.operations.jsonl'
_LEGIBLE = 40
"""How many characters of a name a folder shows."""


class FileMemoryStore(MemoryStore):
    """Keeps each note in a file `<agent>/<namespace>/<note>.md` of a folder. Not on Windows.

    Several processes of one machine may share the folder, and a person may edit the files with any editor, add new ones
    and delete them. A change of the store is made to what is in the file at that moment; when a person saves the file
    in between, the change is made anew. Files whose names are not those of notes are left alone.

    The names of folders begin with what they can show of an agent's name and a namespace, and end with a digest of it,
    so that any two are different in every file system.

    A glance lists the notebook's folder, and reads of the one file no more than it has to.

    Args:
        directory: The folder; it is made by the first write. It may be a link, but nothing in it.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory).absolute()

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        return await to_thread.run_sync(self._look, notebook, name, max_bytes, max_names)

    async def _read(self, notebook: Notebook, name: str) -> str | None:
        found = await to_thread.run_sync(self._texts, notebook, [name])
        return found[0].text if found else None

    async def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        names = sorted(await to_thread.run_sync(self._names, notebook))
        for start in range(0, len(names), PAGE):
            yield await to_thread.run_sync(self._texts, notebook, names[start : start + PAGE])

    async def forget(self, notebook: Notebook) -> None:
        await to_thread.run_sync(self._remove, notebook)

    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        return await to_thread.run_sync(self._change, notebook, name, edit, key)

    def _look(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        with ExitStack() as stack:
            folder = self._folder(stack, notebook)
            if folder is None:
                return Glance(None, False, (), False)
            data = folder.read(name + _NOTE, limit=max_bytes + 1)
            others = heapq.nsmallest(max_names + 1, (other for other in _note_names(folder) if other != name))
            with _decoding(folder, name):
                return Glance.of(data, others, max_bytes=max_bytes, max_names=max_names)

    def _names(self, notebook: Notebook) -> list[str]:
        with ExitStack() as stack:
            folder = self._folder(stack, notebook)
            return [] if folder is None else list(_note_names(folder))

    def _texts(self, notebook: Notebook, names: Iterable[str]) -> list[Note]:
        with ExitStack() as stack:
            folder = self._folder(stack, notebook)
            if folder is None:
                return []
            return [Note(name, text) for name in names if (text := _text(folder, name)) is not None]

    def _folder(self, stack: ExitStack, notebook: Notebook) -> Folder | None:
        folder = Folder.at(STORE, self._directory)
        for part in (notebook.agent, notebook.namespace):
            if folder is None:
                return None
            folder = stack.enter_context(folder).within(folder_name(part))
        return None if folder is None else stack.enter_context(folder)

    def _remove(self, notebook: Notebook) -> None:
        with ExitStack() as stack:
            folder = self._folder(stack, notebook)
            if folder is None:
                return
            agent = stack.enter_context(Folder.made_at(STORE, folder.path.parent))
            stack.enter_context(folder.locked(_JOURNAL))
            agent.remove_within(folder.path.name)
            agent.remove_leftovers()

    def _change(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        with ExitStack() as stack:
            folder = stack.enter_context(Folder.made_at(STORE, self._directory))
            for part in (notebook.agent, notebook.namespace):
                folder = stack.enter_context(folder.make(folder_name(part)))
            descriptor = stack.enter_context(folder.locked(_JOURNAL))
            return _Held(folder, Journal(folder, _JOURNAL, descriptor)).change(name, edit, key)


@dataclass(frozen=True)
class _Held:
    """A notebook whose lock is held. The lock is its journal, so that what a process that died left is finished."""

    folder: Folder
    journal: Journal

    def change(self, name: str, edit: Edit, key: str) -> str:
        self._finish()
        operations = _Operations.of(self.folder)
        done = operations.revision(key)
        if done is not None:
            return done
        while True:
            before = self.folder.stat(name + _NOTE)
            text = _text(self.folder, name)
            new = edited(name, text, edit)
            line = {'key': key, 'note': name, 'before': revision_of(text), 'after': revision_of(new)}
            data = None if new is None else new.encode()
            changes = [Change('', name + _NOTE, data), operations.change(json.dumps(line).encode())]
            self.journal.write(changes)
            # A person does not ask for the lock.
            if _signature(before) == _signature(self.folder.stat(name + _NOTE)):
                apply(self.folder, changes)
                self._clear()
                return line['after']
            self._clear()

    def _finish(self) -> None:
        """Make the change that was cut short, unless a person has changed the note since: then it has not happened."""
        pending = self.journal.pending()
        if pending:
            line = json.loads((pending[-1].data or b'').rstrip(b'\n').rpartition(b'\n')[2])
            if revision_of(_text(self.folder, line['note'])) in (line['before'], line['after']):
                apply(self.folder, pending)
            self._clear()

    def _clear(self) -> None:
        # On disk, so that no loss of power brings it back over what a person wrote since.
        self.journal.clear()
        self.journal.flush()


@dataclass(frozen=True)
class _Operations:
    """The file of a notebook's newest operations, the lines of which begin with their keys."""

    lines: list[bytes]

    @classmethod
    def of(cls, folder: Folder) -> _Operations:
        # What follows the last end of a line is a line that was cut short, and none.
        return cls((folder.read(_OPERATIONS) or b'').split(b'\n')[:-1])

    def revision(self, key: str) -> str | None:
        start = json.dumps({'key': key}).encode()[:-1]
        for line in self.lines:
            if line.startswith(start + b','):
                return json.loads(line)['after']
        return None

    def change(self, line: bytes) -> Change:
        """Return the change that adds a line, and drops old ones when there are many."""
        if len(self.lines) < 2 * OPERATIONS_KEPT:
            return Change('', _OPERATIONS, line + b'\n', sum(len(other) + 1 for other in self.lines))
        kept = [*self.lines[1 - OPERATIONS_KEPT :], line]
        return Change('', _OPERATIONS, b''.join(other + b'\n' for other in kept))


def folder_name(part: str) -> str:
    """Return the name of the folder of an agent or a namespace: another one for any other text."""
    legible = re.sub('[^a-z0-9]+', '-', part.lower())[:_LEGIBLE].strip('-')
    digest = hashlib.sha256(part.encode()).hexdigest()[:32]
    return f'{legible}-{digest}' if legible else digest


def _note_names(folder: Folder) -> Iterable[str]:
    for name in folder.names():
        if name.endswith(_NOTE):
            with suppress(InvalidNoteNameError):
                yield check_note_name(name.removesuffix(_NOTE))


def _text(folder: Folder, name: str) -> str | None:
    data = folder.read(name + _NOTE, limit=NOTE_BYTES + 1)
    if data is None:
        return None
    if len(data) > NOTE_BYTES:
        raise NoteTooLargeError(name, f'{folder.path / (name + _NOTE)} has more than {NOTE_BYTES} bytes.')
    with _decoding(folder, name):
        return data.decode()


@contextmanager
def _decoding(folder: Folder, name: str) -> Generator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise StoreCorruptionError(STORE, f'{folder.path / (name + _NOTE)} is no text in UTF-8: {error}.') from error


def _signature(stat: os.stat_result | None) -> tuple[int, ...]:
    return () if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)
