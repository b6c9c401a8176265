"""The contract of memory stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from harness_temporal.memory.notes import Edit, Glance, Note, Notebook, check_note_name

PAGE = 100
"""Notes that are read at a time."""


class MemoryStore(ABC):
    """Keeps notebooks. A store derives from it and implements the methods with an underscore.

    Every method may be called by many tasks and processes at once. What fails in the store itself raises a
    `StoreError`; what does not fit a note, a `NoteError`.
    """

    async def glance(self, notebook: Notebook, *, name: str, max_bytes: int, max_names: int) -> Glance:
        """Return the beginning of a note and the names of the first others, by one read that is bounded by both limits.

        Raises:
            InvalidNoteNameError: No note can have this name.
        """
        return await self._glance(notebook, check_note_name(name), max_bytes, max_names)

    async def read(self, notebook: Notebook, name: str) -> Note | None:
        """Return a note as it was at one moment; `None` if there is none.

        Raises:
            InvalidNoteNameError: No note can have this name.
        """
        text = await self._read(notebook, check_note_name(name))
        return None if text is None else Note(name, text)

    async def edit(self, notebook: Notebook, name: str, edit: Edit, *, key: str) -> str:
        """Make one change as a whole or not at all, on disk when it returns, and return the note's new revision.

        Done again with the same key it changes nothing and returns the same, as long as the operation is one of the
        notebook's `OPERATIONS_KEPT` newest, also when the note was changed or deleted since.

        Raises:
            InvalidNoteNameError: No note can have this name.
            NoteNotFoundError: There is nothing to replace in, or to delete.
            NoteConflictError: The note has another revision, or the passage is not in it exactly once.
            NoteTooLargeError: The note would become larger than `NOTE_BYTES`.
            NotStorableError: The text has U+0000 or a lone surrogate.
        """
        return await self._edit(notebook, check_note_name(name), edit, key)

    @abstractmethod
    async def forget(self, notebook: Notebook) -> None:
        """Delete a notebook: all of its notes and operations, and nothing of any other. Without one, do nothing."""

    @abstractmethod
    def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        """Yield all notes in the order of their names, up to `PAGE` at a time, each as it was at a moment of its own.

        One that comes or goes meanwhile may be missing.
        """

    @abstractmethod
    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance: ...

    @abstractmethod
    async def _read(self, notebook: Notebook, name: str) -> str | None: ...

    @abstractmethod
    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str: ...

    async def aclose(self) -> None:  # noqa: B027  # not every store has something to release
        """Release what the store itself opened. A second call does nothing."""
