"""Notebooks, notes and what may be done to a note. Pure: no clock, no I/O.

The rules for names are the same on every store, so that a notebook can move between them and no name ever becomes a
path, a field name or SQL that means something else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from harness_temporal.errors import (
    InvalidNotebookError,
    InvalidNoteNameError,
    NoteConflictError,
    NoteNotFoundError,
    NoteTooLargeError,
    NotStorableError,
)
from harness_temporal.text import UNSTORABLE

MAIN: Final = 'main'
"""The note that the model sees with every request."""
NOTE_BYTES: Final = 128 * 1024
"""The largest note, in bytes of UTF-8."""
NAME_LIMIT: Final = 200
"""The longest name of an agent or a namespace, in characters."""
OPERATIONS_KEPT: Final = 1000
"""How many of its newest operations a notebook remembers. One that is repeated after so many others is done again."""

_NOTE_NAME = re.compile(r'[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?')


@dataclass(frozen=True)
class Notebook:
    """The notes of one agent in one namespace. Any two different pairs are different notebooks.

    Raises:
        InvalidNotebookError: A part is empty or too long, or has a character that not every store can keep.
    """

    agent: str
    namespace: str

    def __post_init__(self) -> None:
        for part, value in (('agent name', self.agent), ('namespace', self.namespace)):
            if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's callable gave it
                raise InvalidNotebookError(part, repr(value), 'it is no string.')
            if not value.strip():
                raise InvalidNotebookError(part, value, 'it is empty.')
            if len(value) > NAME_LIMIT:
                raise InvalidNotebookError(part, value, f'it has more than {NAME_LIMIT} characters.')
            if UNSTORABLE.search(value):
                raise InvalidNotebookError(part, value, 'U+0000 and lone surrogates are not allowed.')

    @property
    def digest(self) -> str:
        """The identity of the notebook, in 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps([self.agent, self.namespace]).encode()).hexdigest()


@dataclass(frozen=True)
class Note:
    """A note as it was read."""

    name: str
    text: str

    @property
    def revision(self) -> str:
        """Names this very text; see `revision_of`."""
        return revision_of(self.text)


@dataclass(frozen=True)
class Glance:
    """What one bounded read tells of a notebook."""

    head: str | None
    """The beginning of the note that was asked for; `None` if there is none."""
    is_cut: bool
    """Whether that note goes on."""
    names: tuple[str, ...]
    """The first of the other notes, in the order of their names."""
    has_more: bool
    """Whether there are others still."""

    @classmethod
    def of(cls, data: bytes | None, others: Sequence[str], *, max_bytes: int, max_names: int) -> Glance:
        """Return what is told of a note's UTF-8, or of none, and of the other notes, in order.

        Of both there may be more than is told, by a byte, a character or a name: that shows whether they go on.

        Raises:
            UnicodeDecodeError: It is no UTF-8.
        """
        head, is_cut = (None, False) if data is None else head_of(data, max_bytes)
        return cls(head, is_cut, tuple(others[:max_names]), len(others) > max_names)


@dataclass(frozen=True)
class Append:
    """Add a text at the end of a note, on a line of its own. A note that is not there is made."""

    text: str
    revision: str | None = None


@dataclass(frozen=True)
class Replace:
    """Put a text in the place of a passage that occurs exactly once."""

    old: str
    text: str
    revision: str | None = None


@dataclass(frozen=True)
class Delete:
    """Remove a note."""

    revision: str | None = None


Edit: TypeAlias = Append | Replace | Delete
"""One change of one note. With a `revision` it is made only if the note still has that one."""

DELETED: Final[Literal['']] = ''
"""The revision of a note that is not there."""


def revision_of(text: str | None) -> str:
    """Return what tells a text from any other: 16 digits of its SHA-256, or `DELETED`.

    It follows from the text alone, so a change by hand has one too, and no store has to count.
    """
    return DELETED if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def check_note_name(name: str) -> str:
    """Return `name` if a note may have it: 1 to 64 of `a-z 0-9 _ -`, beginning and ending with a letter or digit.

    Such names are the same in every file system, case and Unicode form, and so never share a file.

    Raises:
        InvalidNoteNameError: It may not be used.
    """
    if not _NOTE_NAME.fullmatch(name):
        raise InvalidNoteNameError(
            name, 'a name is 1 to 64 lower-case letters, digits, `_` and `-`, with a letter or digit at both ends.'
        )
    return name


def edited(name: str, text: str | None, edit: Edit) -> str | None:
    """Return the text that an edit makes of a note's; `None` stands for a note that is not there.

    Raises:
        NoteNotFoundError: There is nothing to replace in, or to delete.
        NoteConflictError: The note has another revision, or the passage is not in it exactly once.
        NoteTooLargeError: The new text is larger than `NOTE_BYTES`.
        NotStorableError: It has a character that not every store can keep.
    """
    if edit.revision is not None and edit.revision != revision_of(text):
        raise NoteConflictError(name, 'it was changed since that revision. Read it again.')
    if isinstance(edit, Append):
        return _checked(name, _appended(text or '', edit.text))
    if text is None:
        raise NoteNotFoundError(name)
    if isinstance(edit, Delete):
        return None
    count = text.count(edit.old) if edit.old else 0
    # `count` does not see overlaps: "aa" is twice in "aaa".
    if count != 1 or text.find(edit.old, text.find(edit.old) + 1) >= 0:
        raise NoteConflictError(
            name,
            f'the passage to replace has to be in it exactly once, and is {"not in it" if not count else "not unique"}.'
            ' Read it again.',
        )
    return _checked(name, text.replace(edit.old, edit.text))


def _appended(text: str, addition: str) -> str:
    return f'{text}\n{addition}' if text and not text.endswith('\n') else f'{text}{addition}'


def _checked(name: str, text: str) -> str:
    if UNSTORABLE.search(text):
        raise NotStorableError(f'The text of note {name!r}', 'U+0000 and lone surrogates are not allowed.')
    size = len(text.encode())
    if size > NOTE_BYTES:
        raise NoteTooLargeError(name, f'it would have {size} bytes, at most {NOTE_BYTES} are allowed.')
    return text


def head_of(data: bytes, limit: int) -> tuple[str, bool]:
    """Return the beginning of a text's UTF-8 in at most `limit` bytes, and whether it goes on.

    Raises:
        UnicodeDecodeError: It is no UTF-8.
    """
    if len(data) <= limit:
        return data.decode(), False
    while limit and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return data[:limit].decode(), True
