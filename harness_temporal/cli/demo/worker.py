"""The demo's worker process: `python -m harness_temporal.cli.demo.worker READY_FILE FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal.cli.demo.agent import librarian
from harness_temporal.cli.demo.files import DemoFiles
from harness_temporal.cli.demo.processes import ChildProcess
from harness_temporal.cli.demo.workflow import CodeLibrarianWorkflow
from harness_temporal.temporal import HarnessPlugin, serve

TASK_QUEUE = 'code-librarian'


class DemoWorker(ChildProcess):
    """A worker process. It waits, with its imports done, until it is told where the server is.

    So it stands for a further worker of a deployment: when it takes over, the time that counts is not Python's start.
    """

    def __init__(self, number: int, files: DemoFiles) -> None:
        name = f'worker-{number}'
        self._ready = files.marker(name)
        super().__init__(name, [sys.executable, '-m', __name__, self._ready, files.folder], log=files.log(name))

    def is_ready(self) -> bool:
        """Whether it waits to be told."""
        return self._ready.exists()

    def connect(self, address: str) -> None:
        """Let it work for the server at that address."""
        self.tell(address)


async def run_worker(files: DemoFiles, address: str) -> None:
    """Run a worker until SIGTERM."""
    client = await Client.connect(address, plugins=[HarnessPlugin(agents=[librarian(files)])])
    await serve(Worker(client, task_queue=TASK_QUEUE, workflows=[CodeLibrarianWorkflow], build_id='demo'))


def main() -> None:
    """Wait for an address on standard input; without one the director is gone."""
    ready, folder = map(Path, sys.argv[1:])
    ready.touch()
    address = sys.stdin.readline().strip()
    if address:
        asyncio.run(run_worker(DemoFiles(folder), address))


if __name__ == '__main__':
    main()
