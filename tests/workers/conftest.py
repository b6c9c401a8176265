from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from harness_temporal.media import DiskMediaStore
from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.payloads import PayloadStorage
from tests.workers.processes import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
async def client(temporal_server: DevServer, tmp_path: Path) -> Client:
    payloads = PayloadStorage(DiskMediaStore(tmp_path / 'payloads'))
    return await Client.connect(temporal_server.address, plugins=[HarnessPlugin(payloads=payloads)])


@pytest.fixture
def start_worker(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> Iterator[StartWorker]:
    started: list[WorkerProcess] = []

    def start(**settings: Any) -> WorkerProcess:
        started.append(WorkerProcess(temporal_server.address, task_queue, tmp_path, settings))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()
