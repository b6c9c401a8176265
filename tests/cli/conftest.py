from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness_temporal.cli.app import app
from harness_temporal.temporal.dev_server import DevServer, dev_server
from tests.cli.processes import COMMAND, environment
from tests.without_settings import leave_settings


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def cli(*arguments: str, typed: str | None = None) -> Done:
    """Run a command in this process, with what is typed as its standard input. A crash is raised."""
    done = CliRunner().invoke(app, [*arguments], input=typed, catch_exceptions=False)
    return Done(done.exit_code, done.stdout, done.stderr)


def given(*arguments: str) -> Any:
    """Run a command with `--json` that ends well, and return what it gives."""
    done = cli(*arguments, '--json')
    assert done.status == 0, done.stderr
    data = done.json
    assert data.pop('ok') is True
    return data


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work without a file of settings, and without variables of whoever runs the tests."""
    leave_settings(monkeypatch, tmp_path)
    yield
    # Each test is to import its own.
    for file in tmp_path.glob('*.py'):
        sys.modules.pop(file.stem, None)


@pytest.fixture(scope='session')
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server of our own: nobody has set up its namespace, and no threads are listed but ours."""
    with dev_server(ui=False, log=tmp_path_factory.mktemp('temporal') / 'server.log') as server:
        yield server


@dataclass(frozen=True)
class Office:
    """A worker of `tests.cli.agents`, started by the command line."""

    address: str
    task_queue: str
    store: str
    log: Path
    started: Any
    """What the worker said when it worked."""


@pytest.fixture(scope='session')
def office(temporal_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp('office')
    store, task_queue = f'sqlite:{folder / "runs.db"}', f'tests-{uuid.uuid4()}'
    command = [*COMMAND, 'worker', 'tests.cli.agents', '--json']
    with (folder / 'worker.log').open('wb') as log:
        worker = subprocess.Popen(
            [*command, '--address', temporal_server.address, '--task-queue', task_queue],
            cwd=folder,
            env=environment(HARNESS_STORE_URL=store),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert worker.stdout is not None
    try:
        line = worker.stdout.readline()
        assert line, (folder / 'worker.log').read_text()
        yield Office(temporal_server.address, task_queue, store, folder / 'worker.log', json.loads(line))
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert worker.returncode == 0, (folder / 'worker.log').read_text()


@pytest.fixture
def at_work(office: Office, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Set the settings to the office's."""
    monkeypatch.setenv('TEMPORAL_ADDRESS', office.address)
    monkeypatch.setenv('HARNESS_TASK_QUEUE', office.task_queue)
    monkeypatch.setenv('HARNESS_STORE_URL', office.store)
    return office
