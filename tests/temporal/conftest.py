"""A task queue and a store per test, workers that are real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer
from tests.temporal.processes import Workers


@pytest.fixture
async def client(temporal_server: DevServer) -> Client:
    return await Client.connect(temporal_server.address, plugins=[HarnessPlugin()])


@pytest.fixture
async def workers(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> AsyncIterator[Workers]:
    """Start worker processes of the test's task queue; whatever is left of them is killed at the end."""
    started = Workers(address=temporal_server.address, task_queue=task_queue, folder=tmp_path)
    yield started
    started.kill_all()
