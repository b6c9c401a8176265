"""The message log: one file per link, named by its digest, shared by all runs of the store.

A file never changes, and those it builds on are there before it. So no lock is needed, and a link that is there has its
whole history there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.history import link, stored_message
from harness_temporal.records import EncodedHistory
from harness_temporal.stores.file.folders import STORE, Folder

_FOLDER = 'messages'


class NewMessages:
    """What a batch adds to the log. Nothing of it is written before `store`."""

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._log = root.within(_FOLDER)
        self._new: dict[bytes, bytes] = {}
        self._is_used = False

    def __enter__(self) -> NewMessages:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    def add(self, history: EncodedHistory) -> None:
        """Take what is new of a history.

        Raises:
            HistoryMissingError: What it extends is not here.
        """
        known = len(history.links)
        while known and not self._has(history.links[known - 1].digest):
            known -= 1
        if not known and history.base is not None and not self._has(history.base):
            raise HistoryMissingError(STORE, f'the history {history.base.hex()} is not in {self._root.path}.')
        self._is_used = self._is_used or history.head is not None
        for item in history.links[known:]:
            parent = item.parent.hex().encode() if item.parent else b''
            self._new[item.digest] = b'\n'.join([parent, item.message.body])

    def store(self) -> None:
        """Put it on disk, each message after those before it."""
        if not self._is_used:
            return
        if self._log is None:
            self._log = self._root.make(_FOLDER)
        for digest, content in self._new.items():
            self._log.replace(digest.hex(), content, through=f'{digest.hex()}.{secrets.token_hex(8)}')
        # Also if all of it was there: another process may have put it there a moment ago.
        self._log.flush(always=True)

    def _has(self, digest: bytes) -> bool:
        return digest in self._new or (self._log is not None and self._log.stat(digest.hex()) is not None)


def read_histories(root: Folder, heads: Iterable[bytes | None]) -> list[list[bytes]]:
    """Return the bodies of each history. A message that several share is read once.

    Raises:
        StoreCorruptionError: A message is missing or damaged.
    """
    links: dict[bytes, tuple[bytes | None, bytes]] = {}
    histories: list[list[bytes]] = []
    with root.within(_FOLDER) or nullcontext() as log:
        for head in heads:
            bodies: list[bytes] = []
            while head is not None:
                if head not in links:
                    links[head] = _read(log, head, root.path / _FOLDER / head.hex())
                head, body = links[head]
                bodies.append(body)
            histories.append(bodies[::-1])
    return histories


def _read(log: Folder | None, digest: bytes, path: Path) -> tuple[bytes | None, bytes]:
    content = log.read(path.name) if log is not None else None
    if content is None:
        raise StoreCorruptionError(STORE, f'{path}: the message is missing.')
    parent_digest, _, body = content.partition(b'\n')
    try:
        parent = bytes.fromhex(parent_digest.decode()) or None
    except ValueError:
        parent = None
    if link(parent, 0, [stored_message(body)]).head != digest:
        raise StoreCorruptionError(STORE, f'{path}: the message is damaged.')
    return parent, body
