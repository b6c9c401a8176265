from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from harness_temporal.memory import MAIN
from tests.backends import PERSISTENT
from tests.conformance.opening import drop_schema
from tests.memory.appending import APPENDS, BOOK, append_in_processes, open_store
from tests.mongo_server import drop_database

WRITERS = ['left', 'right']


@pytest.fixture(params=PERSISTENT)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str, str]]:
    backend, name = request.param, f'memory_{uuid4().hex}'
    if backend in ('file', 'sqlite'):
        yield backend, str(tmp_path), name
        return
    server: str = request.getfixturevalue(backend)
    yield backend, server, name
    await (drop_schema if backend == 'postgres' else drop_database)(server, name)


async def test_two_processes_that_append_at_once_lose_nothing(place: tuple[str, str, str]) -> None:
    assert await asyncio.to_thread(append_in_processes, *place, WRITERS) == [0, 0]
    store = open_store(*place)
    try:
        note = await store.read(BOOK, MAIN)
    finally:
        await store.aclose()
    assert note is not None
    lines, appends = note.text.split('\n'), APPENDS[place[0]]
    assert len(lines) == appends * len(WRITERS)
    for writer in WRITERS:
        assert [line for line in lines if line.startswith(writer)] == [f'{writer} {n}' for n in range(appends)]
