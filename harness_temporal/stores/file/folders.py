"""Folders by descriptor: no symbolic link is followed, all is its owner's alone, and every error names a path."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from harness_temporal.disk import LOCK_SECONDS, put_on_disk, take_lock
from harness_temporal.errors import StoreCorruptionError, StoreUnavailableError

STORE: Final = 'FileStepStore'

_REMOVED = '.removed-'
MESSAGES: Final = 'messages'
MEDIA: Final = 'media'

_SAFE = getattr(os, 'O_NOFOLLOW', 0) | getattr(os, 'O_CLOEXEC', 0)
_NOT_WHAT_IT_SHOULD_BE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR})
_NAME_LIMIT = 200
_DEVICES = {f'{port}{number}' for port in ('com', 'lpt') for number in range(10)}
_RESERVED = frozenset({'con', 'prn', 'aux', 'nul', *_DEVICES, MESSAGES, MEDIA})
"""What Windows takes for devices, and the folders that the store keeps beside those of the runs."""


def folder_name(run_id: str) -> str:
    """Return the name of a run's folder: another one for every id, also where case and final dots do not count.

    An id of lower-case letters, digits, `_`, `-` and inner dots is its own name, unless it is reserved or too long.
    """
    name = re.sub('[A-Z]', lambda letter: f'+{letter[0].lower()}', run_id).replace(':', '=')
    if name.startswith('.') or name.partition('.')[0] in _RESERVED:
        name = f'%{ord(name[0]):02x}{name[1:]}'
    if name.endswith('.'):
        name = f'{name[:-1]}%2e'
    if len(name) > _NAME_LIMIT:
        name = f'{name[:100]}~{hashlib.sha256(run_id.encode()).hexdigest()}'
    return name


class FolderRemovedError(StoreUnavailableError):
    """A folder was removed while it was opened."""

    def __init__(self, store: str, path: Path) -> None:
        super().__init__(store, f'{path} was removed while it was opened.')


class Folder:
    """An open folder. What is written is on disk when the method returns; names in it are only after `flush`.

    Errors name the store that opened it, or the folder that it is in.
    """

    def __init__(self, store: str, path: Path, descriptor: int) -> None:
        self.store = store
        self.path = path
        self._descriptor = descriptor
        self._unflushed = False

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._descriptor)

    @classmethod
    def at(cls, store: str, path: Path) -> Folder | None:
        """Open the folder at `path`, which may be a link, or return `None` if it is not there."""
        with os_errors(store, path):
            try:
                return cls(store, path, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
            except FileNotFoundError:
                return None

    @classmethod
    def made_at(cls, store: str, path: Path) -> Folder:
        """Open the folder at `path`, and make it if it is not there."""
        folder = cls.at(store, path)
        if folder is None:
            with os_errors(store, path):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                with cls(store, path.parent, os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)) as parent:
                    parent.flush(always=True)
                folder = cls(store, path, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        return folder

    def within(self, name: str) -> Folder | None:
        """Open a folder in this one, or `None` if it is not there."""
        path = self.path / name
        with os_errors(self.store, path):
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=self._descriptor)
                return Folder(self.store, path, descriptor)
            except FileNotFoundError:
                return None

    def make(self, name: str) -> Folder:
        """Open a folder in this one, and make it if it is not there."""
        folder = self.within(name)
        if folder is None:
            with os_errors(self.store, self.path / name):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=self._descriptor)
                self.flush(always=True)
            folder = self.within(name)
        if folder is None:
            raise FolderRemovedError(self.store, self.path / name)
        return folder

    def flush(self, *, always: bool = False) -> None:
        """Put on disk which files the folder has, if this object changed it."""
        if self._unflushed or always:
            with os_errors(self.store, self.path):
                os.fsync(self._descriptor)
            self._unflushed = False

    def folders(self) -> list[str]:
        """Return the names of the folders in this one."""
        with os_errors(self.store, self.path), os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def names(self) -> list[str]:
        """Return the names of all that is in this folder."""
        with os_errors(self.store, self.path):
            return os.listdir(self._descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """Return what is known of a file, or `None` if it is not there."""
        with os_errors(self.store, self.path / name):
            try:
                return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def read(self, name: str, start: int = 0, *, limit: int | None = None) -> bytes | None:
        """Return a file from `start`, at most `limit` bytes of it, or `None` if it is not there."""
        with os_errors(self.store, self.path / name):
            try:
                descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=self._descriptor)
            except FileNotFoundError:
                return None
            with open(descriptor, 'rb', buffering=0 if limit is None else -1) as file:
                file.seek(start)
                return file.read(-1 if limit is None else limit)

    def replace(self, name: str, data: bytes, *, through: str | None = None) -> None:
        """Put a whole file in the place of what is there, if anything.

        `through` is the name it has until it is complete. It must be one that nobody else uses at the same time.
        """
        through = through or f'{name}.new'
        with os_errors(self.store, self.path / name):
            with self._writable(through, os.O_CREAT | os.O_TRUNC) as descriptor:
                write_at(descriptor, 0, data)
            os.replace(through, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        self._unflushed = True

    def extend(self, name: str, offset: int, data: bytes) -> None:
        """Let a file go on with `data` at `offset`, where its last whole line ends. Doing it again changes nothing."""
        with os_errors(self.store, self.path / name):
            if offset == 0 and self.stat(name) is None:
                self._unflushed = True
            with self._writable(name, os.O_CREAT) as descriptor:
                if os.pread(descriptor, len(data), offset) != data:
                    os.ftruncate(descriptor, offset)
                    write_at(descriptor, offset, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with os_errors(self.store, self.path / name), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)
            self._unflushed = True

    def touch(self, name: str) -> bool:
        """Make a file look new; false if it is not there."""
        with os_errors(self.store, self.path / name):
            try:
                os.utime(name, dir_fd=self._descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return False
            return True

    def remove_within(self, name: str) -> None:
        """Remove a folder in this one and all that is in it, so that it is gone at once."""
        with os_errors(self.store, self.path / name):
            removed = f'{_REMOVED}{secrets.token_hex(8)}'
            os.rename(name, removed, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            self.flush(always=True)
            shutil.rmtree(removed, dir_fd=self._descriptor)

    def remove_leftovers(self) -> None:
        """Remove what is left of folders whose removal was cut short."""
        with os_errors(self.store, self.path):
            for name in self.folders():
                if name.startswith(_REMOVED):
                    shutil.rmtree(name, dir_fd=self._descriptor, ignore_errors=True)

    def is_within(self, parent: Folder) -> bool:
        """Whether the other folder still has this one, under its name."""
        stat = parent.stat(self.path.name)
        return stat is not None and stat.st_ino == os.fstat(self._descriptor).st_ino

    @contextmanager
    def locked(self, name: str, *, shared: bool = False) -> Generator[int]:
        """Hold the lock on a file, which is made if it is not there; with `shared`, beside others who share it.

        Raises:
            FolderRemovedError: The folder is no longer there.
            StoreUnavailableError: Others held it for too long.
        """
        is_new = self.stat(name) is None
        with ExitStack() as stack:
            stack.enter_context(os_errors(self.store, self.path / name))
            try:
                descriptor = stack.enter_context(self._writable(name, os.O_CREAT, sync=False))
            except FileNotFoundError as error:
                # The file would have been made, so it is the folder that is gone.
                raise FolderRemovedError(self.store, self.path) from error
            try:
                take_lock(descriptor, shared=shared, seconds=LOCK_SECONDS)
            except TimeoutError as error:
                reason = f'{self.path / name} was locked for {LOCK_SECONDS:g} seconds.'
                raise StoreUnavailableError(self.store, reason) from error
            if os.fstat(descriptor).st_nlink == 0:
                raise FolderRemovedError(self.store, self.path)
            self.flush(always=is_new)
            yield descriptor

    @contextmanager
    def _writable(self, name: str, flags: int, *, sync: bool = True) -> Generator[int]:
        descriptor = os.open(name, os.O_RDWR | _SAFE | flags, 0o600, dir_fd=self._descriptor)
        try:
            yield descriptor
            if sync:
                put_on_disk(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def os_errors(store: str, path: Path) -> Generator[None]:
    """Turn what the system says about `path` into errors of this package, of that store."""
    try:
        yield
    except OSError as error:
        reason = f'{path}: {error.strerror or error}.'
        if error.errno in _NOT_WHAT_IT_SHOULD_BE:
            raise StoreCorruptionError(store, f'{reason} It is a link, or not of the kind it should be.') from error
        raise StoreUnavailableError(store, reason) from error


def write_at(descriptor: int, offset: int, data: bytes) -> None:
    """Write all of `data`, which one call of the system may not do."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        offset, rest = offset + written, rest[written:]
