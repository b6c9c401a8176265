"""One Temporal server per test session, a task queue and a store per test, workers that are real processes."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer, dev_server
from tests.temporal.processes import Workers


@pytest.fixture(scope='session')
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(ui=False, log=tmp_path_factory.mktemp('temporal') / 'server.log') as server:
        yield server


@pytest.fixture
async def client(temporal_server: DevServer) -> Client:
    return await Client.connect(temporal_server.address, plugins=[HarnessPlugin()])


@pytest.fixture
def task_queue() -> str:
    return f'tests-{uuid.uuid4()}'


@pytest.fixture
async def workers(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> AsyncIterator[Workers]:
    """Start worker processes of the test's task queue; whatever is left of them is killed at the end."""
    started = Workers(address=temporal_server.address, task_queue=task_queue, folder=tmp_path)
    yield started
    started.kill_all()
