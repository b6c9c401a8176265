"""Records as lines of JSON, and files of such lines."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from harness_temporal.errors import StoreCorruptionError
from harness_temporal.stores.file.folders import STORE, Folder
from harness_temporal.text import escape, unescape

T = TypeVar('T')
_TIMES = frozenset({'started_at', 'ended_at', 'timestamp'})
_BYTES = frozenset({'value', 'body'})
_log = logging.getLogger(__name__)


def as_is(text: str) -> str:
    """Read text that was written without escapes."""
    return text


def dump(values: Mapping[str, object]) -> bytes:
    """Return a line. What is `None` is left out."""
    plain = {name: _plain(value) for name, value in values.items() if value is not None}
    return json.dumps(plain, ensure_ascii=False, separators=(',', ':')).encode() + b'\n'


def load(make: Callable[..., T], values: Mapping[str, Any], path: Path, *, text: Callable[[str], str] = unescape) -> T:
    """Return the record of a line. What it does not say has its default, and what no field is for is ignored.

    Raises:
        StoreCorruptionError: It says something else than the record can hold.
    """
    names = [field.name for field in fields(cast(Any, make)) if field.name in values]
    try:
        return make(**{name: _loaded(name, values[name], text) for name in names})
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise StoreCorruptionError(STORE, f'{path}: a record cannot be read: {error}') from error


def parse(content: bytes, path: Path, line: int | None = None) -> dict[str, Any]:
    """Return the JSON object that `content` is.

    Raises:
        StoreCorruptionError: It is none.
    """
    try:
        values = json.loads(content)
        if not isinstance(values, dict):
            raise ValueError('it is no JSON object')
    except (ValueError, RecursionError) as error:
        where = f'{path}, line {line}' if line else f'{path}'
        raise StoreCorruptionError(STORE, f'{where}: {error}.') from error
    return cast(dict[str, Any], values)


def number_of(line: Mapping[str, Any], path: Path) -> int:
    """Return the number that a line has within its run."""
    seq = line.get('seq')
    if not isinstance(seq, int):
        raise StoreCorruptionError(STORE, f'{path}: a line has no `seq`.')
    return seq


def read_lines(folder: Folder, name: str) -> list[dict[str, Any]]:
    """Return all whole lines of a file."""
    return Lines(name).new(folder)


class RewrittenError(Exception):
    """A file did not only grow since it was read."""


@dataclass
class Lines:
    """A file of lines that only grows, and how far it was read."""

    name: str
    end: int = 0
    """Where the last whole line ends."""
    count: int = 0
    _seen: tuple[int, int] | None = None

    def new(self, folder: Folder) -> list[dict[str, Any]]:
        """Return the lines that came since the last call. What a writer that died left of a line is not one of them.

        Raises:
            RewrittenError: What was read before may not be there any more.
            StoreCorruptionError: A line is damaged.
        """
        stat = folder.stat(self.name)
        if stat is None:
            if self.end:
                raise RewrittenError
            return []
        seen = (stat.st_ino, stat.st_mtime_ns)
        if stat.st_size == self.end and seen == self._seen:
            return []
        if self._seen is not None and (stat.st_ino != self._seen[0] or stat.st_size <= self.end):
            raise RewrittenError
        path = folder.path / self.name
        *lines, torn = (folder.read(self.name, self.end) or b'').split(b'\n')
        values = [parse(line, path, number) for number, line in enumerate(lines, self.count + 1)]
        if torn:
            _log.warning('%s: dropped line %d, which was cut short.', path, self.count + len(lines) + 1)
        self.end += sum(map(len, lines)) + len(lines)
        self.count += len(lines)
        self._seen = seen
        return values

    def wrote(self, folder: Folder, data: bytes | bytearray) -> None:
        """Take note of lines that were put at the end."""
        stat = folder.stat(self.name)
        self.end += len(data)
        self.count += data.count(b'\n')
        self._seen = (stat.st_ino, stat.st_mtime_ns) if stat else None


def _plain(value: object) -> object:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {escape(key): escape(text) for key, text in cast(Mapping[str, str], value).items()}
    return value


def _loaded(name: str, stored: Any, text: Callable[[str], str]) -> Any:
    if stored is None:
        return None
    if name in _TIMES:
        return datetime.fromisoformat(stored)
    if name in _BYTES:
        return b64decode(stored, validate=True)
    if name == 'metadata':
        return {text(key): text(value) for key, value in stored.items()}
    return text(stored) if isinstance(stored, str) else stored
