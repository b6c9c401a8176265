"""Snapshot files: those of this store, which name the head of their history, and those that hold all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness_temporal.errors import StoreCorruptionError
from harness_temporal.history import stored_message
from harness_temporal.records import ContinuableSnapshot, EncodedSnapshot, StoredMessage
from harness_temporal.stores.file.encoding import as_is, dump, load, parse
from harness_temporal.stores.file.folders import STORE, Folder
from harness_temporal.text import unescape

SNAPSHOTS = 'snapshots'
_NAME = re.compile(r'([0-9]{1,18})\.json')


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot as its file has it."""

    snapshot: ContinuableSnapshot
    """Everything but the messages."""
    head: bytes | None
    """Where its history is in the message log, unless it is here."""
    messages: Sequence[StoredMessage]


def snapshot_numbers(run: Folder) -> list[int]:
    """Return the numbers of the snapshots that are there, in order."""
    folder = run.within(SNAPSHOTS)
    if folder is None:
        return []
    with folder:
        return sorted(int(match[1]) for name in folder.names() if (match := _NAME.fullmatch(name)))


def read_snapshot(run: Folder, seq: int) -> StoredSnapshot | None:
    """Return a snapshot, or `None` if it is not there.

    Raises:
        StoreCorruptionError: The file is damaged.
    """
    folder = run.within(SNAPSHOTS)
    if folder is None:
        return None
    with folder:
        content = folder.read(f'{seq}.json')
        return None if content is None else _loaded(content, seq, folder.path / f'{seq}.json')


def dump_snapshot(encoded: EncodedSnapshot, seq: int) -> bytes:
    """Return the content of a snapshot's file."""
    head = encoded.history.head
    values = {**vars(encoded.snapshot), 'seq': seq, 'head': '' if head is None else head.hex()}
    del values['messages']
    return dump(values)


def _loaded(content: bytes, seq: int, path: Path) -> StoredSnapshot:
    values: dict[str, Any] = {**parse(content, path), 'seq': seq}
    # What holds its messages was written by another program, which escapes nothing.
    messages: Any = values.pop('messages', None)
    text = unescape if messages is None else as_is
    snapshot = load(ContinuableSnapshot, {**values, 'messages': []}, path, text=text)
    try:
        head = bytes.fromhex(values['head']) or None if messages is None else None
        stored = [stored_message(json.dumps(message).encode()) for message in messages or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorruptionError(STORE, f'{path}: neither a history nor the head of one ({error!r}).') from error
    return StoredSnapshot(replace(snapshot, messages=[]), head, stored)
