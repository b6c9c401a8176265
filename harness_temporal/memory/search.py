"""Search in a notebook: literal, or by a ranking of the user's. Both are bounded in what they read and return."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from anyio import to_thread

from harness_temporal.memory.notes import Note, Notebook
from harness_temporal.memory.protocol import MemoryStore

Ranker: TypeAlias = Callable[[str, Sequence[Note]], Sequence[str] | Awaitable[Sequence[str]]]
"""Given a query and notes, returns the names of those that fit it, best first. For search by meaning."""

QUERY_LIMIT: Final = 200
"""The longest query, in characters."""
MAX_HITS: Final = 20
EXCERPT: Final = 200
"""Characters that a hit shows of its line."""
SEARCH_BYTES: Final = 32 * 1024 * 1024
"""How much text of a notebook, in bytes, one search looks at."""
_BEFORE = 80
"""Characters that an excerpt shows before what was found."""


@dataclass(frozen=True)
class Hit:
    """A line that a search found."""

    note: str
    line: int
    """Counted from 1."""
    excerpt: str


@dataclass(frozen=True)
class Found:
    """What a search found."""

    hits: tuple[Hit, ...]
    is_complete: bool
    """Whether that is all: the whole notebook was looked at, and everything found is there."""


async def search(store: MemoryStore, notebook: Notebook, query: str, *, rank: Ranker | None = None) -> Found:
    """Return the lines that have `query` in them, without regard to case and to how Unicode composes letters.

    With `rank`, the beginnings of the notes that it names, in its order.
    """
    return await (_literal(store, notebook, query) if rank is None else _ranked(store, notebook, query, rank))


async def _literal(store: MemoryStore, notebook: Notebook, query: str) -> Found:
    folded, hits, size = _folded(query), list[Hit](), 0
    async with aclosing(store.pages(notebook)) as pages:
        async for page in pages:
            hits += await to_thread.run_sync(_hits, page, folded, MAX_HITS + 1 - len(hits))
            size += _size(page)
            if len(hits) > MAX_HITS or size > SEARCH_BYTES:
                return Found(tuple(hits[:MAX_HITS]), is_complete=False)
    return Found(tuple(hits), is_complete=True)


async def _ranked(store: MemoryStore, notebook: Notebook, query: str, rank: Ranker) -> Found:
    notes, size, is_complete = dict[str, Note](), 0, True
    async with aclosing(store.pages(notebook)) as pages:
        async for page in pages:
            notes |= {note.name: note for note in page}
            size += _size(page)
            if size > SEARCH_BYTES:
                is_complete = False
                break
    ranked = rank(query, list(notes.values()))
    names = list(await ranked if inspect.isawaitable(ranked) else ranked)
    best = [notes[name] for name in names if name in notes]
    hits = tuple(Hit(note.name, 1, note.text[:EXCERPT]) for note in best[:MAX_HITS])
    return Found(hits, is_complete and len(best) <= MAX_HITS)


def _hits(page: Sequence[Note], query: str, limit: int) -> list[Hit]:
    hits: list[Hit] = []
    for note in page:
        if query not in _folded(note.text):
            continue
        for number, line in enumerate(note.text.split('\n'), start=1):
            place = _folded(line).find(query)
            if place >= 0:
                # Folding may change how many letters there are before; the excerpt need not begin at the very letter.
                start = max(0, min(place, len(line)) - _BEFORE)
                hits.append(Hit(note.name, number, line[start : start + EXCERPT]))
            if len(hits) == limit:
                return hits
    return hits


def _folded(text: str) -> str:
    # Folded first: some capitals fold to letters that have a composed form.
    return unicodedata.normalize('NFC', unicodedata.normalize('NFC', text).casefold())


def _size(page: Sequence[Note]) -> int:
    return sum(len(note.text.encode()) for note in page)
