"""A conversation store and a step store on one database, of each kind that there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.testing import Place
from tests.backends import DATABASES
from tests.conformance.opening import drop_schema
from tests.conversations.opening import open_place
from tests.mongo_server import drop_database


@pytest.fixture(params=DATABASES)
async def location(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, ...]]:
    """Yield what `open_place` opens, also in another process: a place that is there for one test."""
    name = f'conversations_{uuid4().hex}'
    match request.param:
        case 'sqlite':
            yield 'sqlite', str(tmp_path / 'runs.db')
        case 'postgres':
            dsn: str = request.getfixturevalue('postgres')
            yield 'postgres', dsn, name
            await drop_schema(dsn, name)
        case _:
            url: str = request.getfixturevalue('mongo')
            yield 'mongo', url, name
            await drop_database(url, name)


@pytest.fixture
async def place(location: tuple[str, ...]) -> AsyncIterator[Place]:
    opened = open_place(*location)
    yield opened
    await opened.conversations.aclose()
    await opened.steps.aclose()


@pytest.fixture
def store(place: Place) -> Any:
    return place.conversations
