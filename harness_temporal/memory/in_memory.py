"""A store in this process's memory, for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from threading import Lock

from harness_temporal.memory.notes import OPERATIONS_KEPT, Edit, Glance, Note, Notebook, edited, revision_of
from harness_temporal.memory.protocol import PAGE, MemoryStore
from harness_temporal.recent import Recent


@dataclass
class _Notes:
    texts: dict[str, str] = field(default_factory=dict[str, str])
    operations: Recent[str, str] = field(default_factory=lambda: Recent[str, str](OPERATIONS_KEPT))


class InMemoryMemoryStore(MemoryStore):
    """Keeps everything in memory. One store may serve many threads and event loops."""

    def __init__(self) -> None:
        self._notebooks: dict[Notebook, _Notes] = {}
        self._lock = Lock()

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        texts = self._texts(notebook)
        text = texts.get(name)
        data = None if text is None else text.encode()
        return Glance.of(data, sorted(texts.keys() - {name}), max_bytes=max_bytes, max_names=max_names)

    async def _read(self, notebook: Notebook, name: str) -> str | None:
        return self._texts(notebook).get(name)

    async def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        notes = [Note(name, text) for name, text in sorted(self._texts(notebook).items())]
        for start in range(0, len(notes), PAGE):
            yield notes[start : start + PAGE]

    async def forget(self, notebook: Notebook) -> None:
        with self._lock:
            self._notebooks.pop(notebook, None)

    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        with self._lock:
            notes = self._notebooks.setdefault(notebook, _Notes())
            revision = notes.operations.get(key)
            if revision is not None:
                return revision
            text = edited(name, notes.texts.get(name), edit)
            if text is None:
                del notes.texts[name]
            else:
                notes.texts[name] = text
            revision = revision_of(text)
            notes.operations.put(key, revision)
            return revision

    def _texts(self, notebook: Notebook) -> dict[str, str]:
        with self._lock:
            notes = self._notebooks.get(notebook)
            return {} if notes is None else {**notes.texts}
