"""Processes that append to one notebook at once, from the first use of an empty place on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harness_temporal.memory import (
    MAIN,
    Append,
    FileMemoryStore,
    MemoryStore,
    MongoMemoryStore,
    Notebook,
    PostgresMemoryStore,
    SqliteMemoryStore,
)
from tests.forks import FORKS, import_before_forks

BOOK = Notebook('librarian', 'user-1')
APPENDS = {'file': 100, 'sqlite': 100, 'postgres': 100, 'mongo': 25}
"""By backend. The server that stands in for MongoDB is slow where writers meet."""
import_before_forks('tests.memory.appending')


def open_store(backend: str, place: str, name: str) -> MemoryStore:
    if backend == 'file':
        return FileMemoryStore(Path(place) / name)
    if backend == 'sqlite':
        return SqliteMemoryStore(Path(place) / f'{name}.db')
    if backend == 'postgres':
        return PostgresMemoryStore(place, schema=name)
    return MongoMemoryStore(db_url=place, database=name)


def append_in_processes(backend: str, place: str, name: str, writers: list[str]) -> list[int | None]:
    """Let each writer append its lines in a process of its own, and return how the processes ended."""
    barrier = FORKS.Barrier(len(writers))
    processes = [FORKS.Process(target=_append, args=(backend, place, name, writer, barrier)) for writer in writers]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    return [process.exitcode for process in processes]


def _append(backend: str, place: str, name: str, writer: str, barrier: Any) -> None:
    async def run() -> None:
        store = open_store(backend, place, name)
        barrier.wait(60)
        for number in range(APPENDS[backend]):
            await store.edit(BOOK, MAIN, Append(f'{writer} {number}'), key=f'{writer}-{number}')
        await store.aclose()

    asyncio.run(run())
