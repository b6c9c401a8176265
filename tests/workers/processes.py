"""`python -m workers`, as it is deployed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_temporal.temporal.dev_server import free_port
from tests.workers.folder import FOLDER_VARIABLE

REPOSITORY = Path(__file__).parents[2]


@dataclass
class WorkerProcess:
    """A worker on free ports, whose log goes to a file."""

    address: str
    task_queue: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.http, self.sdk = (f'127.0.0.1:{free_port()}' for _ in range(2))
        self.log = self.folder / f'{self.http.replace(":", "-")}.log'
        environment = {
            **os.environ,
            'TEMPORAL_ADDRESS': self.address,
            'HARNESS_AGENTS': 'tests.workers.agents:scripted',
            'HARNESS_TASK_QUEUE': self.task_queue,
            'HARNESS_HTTP_ADDRESS': self.http,
            'HARNESS_SDK_METRICS_ADDRESS': self.sdk,
            FOLDER_VARIABLE: str(self.folder),
            **self.settings,
        }
        with self.log.open('wb') as log:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'workers'], cwd=REPOSITORY, env=environment, stdout=log, stderr=log
            )

    def get(self, path: str) -> tuple[int, str]:
        return fetch(f'http://{self.http}{path}')

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while not self.is_ready():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def is_ready(self) -> bool:
        try:
            return self.get('/readyz')[0] == 200
        except OSError:
            return False

    def samples(self) -> dict[str, float]:
        """Return what is scraped, by name with labels."""
        return samples(self.get('/metrics')[1])

    def lines(self) -> list[dict[str, Any]]:
        """Return the log; every line of it has to be JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(exposition: str) -> dict[str, float]:
    lines = (line for line in exposition.splitlines() if line and not line.startswith('#'))
    return {name: float(value) for name, _, value in (line.rpartition(' ') for line in lines)}
