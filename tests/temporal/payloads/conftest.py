"""A worker's setup per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_temporal.temporal.dev_server import DevServer
from tests.temporal.payloads.workers import Setup


@pytest.fixture
def setup(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> Setup:
    return Setup(address=temporal_server.address, task_queue=task_queue, folder=tmp_path)
