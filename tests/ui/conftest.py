"""A server with its UI, what there is to see on it, and a browser."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import pytest
from temporalio.client import Client

from harness_temporal import HarnessClient
from harness_temporal.hosting.namespace import set_up
from harness_temporal.temporal import HarnessPlugin, HarnessThreads
from harness_temporal.temporal.dev_server import dev_server
from tests.conftest import missing_service
from tests.forks import FORKS
from tests.ui import clerk
from tests.ui.chromium import chromium, find_chromium
from tests.ui.pictures import HEIGHT, WIDTH, TemporalUI, picture_folder

QUEUE: Final = 'office'
RUN: Final = 'order-1042'
THREAD: Final = 'order_1043'


@dataclass(frozen=True)
class Office:
    """What is on the server: a run that is over, and a thread that waits for a person."""

    ui: str
    run_id: str
    """That which the run is persisted under."""
    run_page: str
    thread_page: str
    """Paths of their workflows' pages."""


@pytest.fixture(scope='session')
def browser() -> str:
    """Return the executable."""
    found = find_chromium()
    if found is None:
        missing_service('no Chromium on the path; HARNESS_TEST_CHROMIUM may name one')
    return found


@pytest.fixture(scope='session')
def office(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Yield a server with a run whose worker was killed and a thread, made once."""
    folder = tmp_path_factory.mktemp('office')
    workers: list[BaseProcess] = []

    def start_worker(address: str) -> BaseProcess:
        workers.append(FORKS.Process(target=clerk.work, args=(address, QUEUE, folder)))
        workers[-1].start()
        return workers[-1]

    with dev_server(ui=True, log=folder / 'server.log') as server:
        assert server.ui is not None
        try:
            yield asyncio.run(_fill(server.address, server.ui, start_worker))
        finally:
            for worker in workers:
                worker.kill()
                worker.join()


async def _fill(address: str, ui: str, start_worker: Callable[[str], BaseProcess]) -> Office:
    client = await Client.connect(address, plugins=[HarnessPlugin()])
    await set_up(client)
    harness = HarnessClient(client, agent=clerk.NAME, task_queue=QUEUE, search_attributes=True)
    run = await harness.start(clerk.PROMPT, conversation_id=RUN, workflow_id=RUN)
    dying = start_worker(address)
    await asyncio.to_thread(dying.join, 60)
    assert dying.exitcode == -signal.SIGKILL
    start_worker(address)
    ended = await run.result()
    threads = HarnessThreads(client, agent=clerk.NAME, task_queue=QUEUE, search_attributes=True)
    thread = await threads.open(THREAD, name='Order 1043')
    asked = await thread.send(clerk.PROMPT)
    assert (ended.status, asked.status) == ('suspended', 'waiting_for_approval')
    described = await thread.handle.describe()
    return Office(
        ui,
        ended.run_id,
        run_page=f'/{RUN}/{run.first_execution_run_id}',
        thread_page=f'/{thread.handle.id}/{described.run_id}',
    )


@pytest.fixture
async def ui(office: Office, browser: str, tmp_path: Path) -> AsyncIterator[TemporalUI]:
    """Yield the UI in a browser."""
    async with chromium(browser, tmp_path / 'profile') as running:
        page = await running.open(width=WIDTH, height=HEIGHT)
        yield await TemporalUI.open(office.ui, page, picture_folder(tmp_path))
