"""The message log: one file per link, named by its digest, shared by all runs of the store.

A file never changes, and those it builds on are there before it, so a link that is there has its whole history there.
Who reads or writes shares a lock; who deletes has it alone. A writer touches the file that it builds on.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.history import link, stored_message
from harness_temporal.records import EncodedHistory, StoredMessage
from harness_temporal.stores.external import is_plain
from harness_temporal.stores.file.folders import MESSAGES, STORE, Folder

_LOCK = '.lock'
_NAME = re.compile(r'[0-9a-f]{64}')


class NewMessages:
    """What a batch adds to the log. Nothing of it is written before `store`."""

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._log: Folder | None = None
        self._new: dict[bytes, bytes] = {}
        self._open = ExitStack()

    def __enter__(self) -> NewMessages:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, history: EncodedHistory) -> None:
        """Take what is new of a history.

        Raises:
            HistoryMissingError: What it extends is not here.
        """
        if history.head is None:
            return
        if self._log is None:
            self._log = self._open.enter_context(self._root.make(MESSAGES))
            self._open.enter_context(self._log.locked(_LOCK, shared=True))
        known = len(history.links)
        while known and not self._has(history.links[known - 1].digest):
            known -= 1
        if not known and history.base is not None and not self._has(history.base):
            raise HistoryMissingError(STORE, f'the history {history.base.hex()} is not in {self._root.path}.')
        for item in history.links[known:]:
            parent = item.parent.hex() if item.parent else ''
            self._new[item.digest] = f'{parent} {item.message.digest.hex()}\n'.encode() + item.message.body

    def store(self) -> None:
        """Put it on disk, each message after those before it. They are referred to before the lock is given back."""
        if self._log is None:
            return
        for digest, content in self._new.items():
            self._log.replace(digest.hex(), content, through=f'{digest.hex()}.{secrets.token_hex(8)}')
        # Also if all of it was there: another process may have put it there a moment ago.
        self._log.flush(always=True)

    def _has(self, digest: bytes) -> bool:
        return digest in self._new or (self._log is not None and self._log.touch(digest.hex()))


def read_histories(root: Folder, heads: Iterable[bytes | None]) -> list[list[StoredMessage]]:
    """Return the messages of each history. One that several share is read once.

    Raises:
        StoreCorruptionError: A message is missing or damaged.
    """
    links: dict[bytes, tuple[bytes | None, StoredMessage]] = {}
    histories: list[list[StoredMessage]] = []
    with root.within(MESSAGES) or nullcontext() as log:
        for head in heads:
            messages: list[StoredMessage] = []
            while head is not None:
                if head not in links:
                    links[head] = _read(log, head, root.path / MESSAGES / head.hex())
                head, message = links[head]
                messages.append(message)
            histories.append(messages[::-1])
    return histories


@contextmanager
def reading(root: Folder) -> Generator[None]:
    """Keep what snapshots have from being deleted until they were read."""
    with ExitStack() as stack:
        log = root.within(MESSAGES)
        if log is not None:
            stack.enter_context(log)
            stack.enter_context(log.locked(_LOCK, shared=True))
        yield


def collect(root: Folder, heads: Iterable[bytes], untouched_since: datetime) -> int:
    """Delete the messages of no history that ends at one of `heads`, and return how many.

    A history that is saved meanwhile builds on a file that was touched, and on those before it.
    """
    log = root.within(MESSAGES)
    if log is None:
        return 0
    with log:
        used = _with_those_before(log, (head.hex() for head in heads))
        loose = [name for name in log.names() if name not in used and _is_old(log, name, untouched_since)]
        with log.locked(_LOCK):
            touched = (name for name in loose if not _is_old(log, name, untouched_since))
            kept = _with_those_before(log, touched)
            deleted = [name for name in loose if name not in kept]
            for name in deleted:
                log.remove(name)
            log.flush()
    return sum(_NAME.fullmatch(name) is not None for name in deleted)


def message_bodies(root: Folder) -> Generator[bytes]:
    """Yield what is stored of every message."""
    log = root.within(MESSAGES)
    if log is None:
        return
    with log:
        for name in log.names():
            content = log.read(name) if _NAME.fullmatch(name) else None
            if content is not None:
                yield content.partition(b'\n')[2]


def _with_those_before(log: Folder, names: Iterable[str]) -> set[str]:
    """Return the names of these messages and of all that come before them."""
    found = set[str]()
    for name in names:
        step = name
        while step and step not in found:
            found.add(step)
            content = log.read(step)
            step = '' if content is None else content.partition(b' ')[0].decode('ascii', 'replace')
    return found


def _is_old(log: Folder, name: str, untouched_since: datetime) -> bool:
    stat = log.stat(name)
    return name != _LOCK and stat is not None and stat.st_mtime < untouched_since.timestamp()


def _read(log: Folder | None, digest: bytes, path: Path) -> tuple[bytes | None, StoredMessage]:
    content = log.read(path.name) if log is not None else None
    if content is None:
        raise StoreCorruptionError(STORE, f'{path}: the message is missing.')
    names, _, body = content.partition(b'\n')
    try:
        parent, message = (bytes.fromhex(name) for name in names.decode().split(' '))
    except ValueError:
        parent = message = b''
    stored = StoredMessage(message, body)
    is_changed = is_plain(body) and stored_message(body).digest != message
    if is_changed or link(parent or None, 0, [stored]).head != digest:
        raise StoreCorruptionError(STORE, f'{path}: the message is damaged.')
    return parent or None, stored
