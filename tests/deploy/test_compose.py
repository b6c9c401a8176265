from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness_temporal.hosting.settings import WorkerSettings
from tests.deploy.files import DEPLOY, documents
from tests.without_settings import leave_settings
from workers.drain import AFTER_GRACE_SECONDS
from workers.settings import Settings

[COMPOSE] = documents(DEPLOY / 'compose.yaml')
SERVICES: dict[str, Any] = COMPOSE['services']
LASTING = [name for name, service in SERVICES.items() if service.get('restart')]


def test_it_is_what_the_compose_specification_allows() -> None:
    schema = files('check_jsonschema.builtin_schemas.vendor').joinpath('compose-spec.json').read_text()
    jsonschema.validate(COMPOSE, json.loads(schema))


def test_the_services_are_there() -> None:
    assert {'temporal-postgres', 'temporal', 'postgres', 'mongo', 'minio', 'worker'} <= SERVICES.keys()
    assert {'temporal-schema', 'minio-bucket', 'set-up'} == SERVICES.keys() - set(LASTING)


@pytest.mark.parametrize('name', [name for name in LASTING if name != 'temporal-ui'])
def test_what_stays_up_has_a_health_check(name: str) -> None:
    assert SERVICES[name]['healthcheck']['test']


def test_what_is_waited_for_can_be_waited_for() -> None:
    waits = [(name, *wait) for name, service in SERVICES.items() for wait in service.get('depends_on', {}).items()]
    assert len(waits) > 5
    for _, other, wait in waits:
        lasting = wait['condition'] == 'service_healthy'
        assert ('healthcheck' in SERVICES[other]) == lasting
        assert (other in LASTING) == lasting


def test_data_is_in_volumes_that_are_declared() -> None:
    named = [volume.partition(':')[0] for s in SERVICES.values() for volume in s.get('volumes', ()) if volume[0] != '.']
    assert sorted(named) == sorted(COMPOSE['volumes'])


def test_every_image_is_of_one_release() -> None:
    images = {service['image'] for service in SERVICES.values()} - {'harness-temporal-worker'}
    assert len(images) > 5
    assert all(re.fullmatch(r'[a-z/-]+:\S*\d\S*', image) for image in images)


def test_passwords_are_for_development_and_say_so() -> None:
    secrets = [
        value
        for service in SERVICES.values()
        for name, value in service.get('environment', {}).items()
        if name.endswith(('PASSWORD', 'PWD', 'SECRET_ACCESS_KEY', 'KEYS')) or ('://' in value and '@' in value)
    ]
    assert len(secrets) > 5
    assert all(re.search(r'\$\{[A-Z_]+:-(development-only)?\}', value) for value in secrets)


def test_ports_are_reached_from_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get('ports', ())]
    assert len(ports) > 3
    assert all(port.startswith('127.0.0.1:') for port in ports)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """What the worker makes of its environment."""
    leave_settings(monkeypatch, tmp_path)
    for name, value in SERVICES['worker']['environment'].items():
        monkeypatch.setenv(name, re.sub(r'\$\{[A-Z_]+:-([^}]*)\}', r'\1', value))
    return Settings.load()


def test_the_worker_understands_its_environment_and_loads_its_agents(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEPLOY))
    known = {WorkerSettings.variable(name) for name in WorkerSettings.model_fields} | {'HARNESS_PAYLOAD_KEYS'}
    given = {name for name in SERVICES['worker']['environment'] if name.startswith('HARNESS_')}
    assert given <= known
    assert [agent.name for agent in settings.worker.load_agents()] == ['librarian', 'archivist']
    assert settings.worker.load_payloads() is not None
    assert settings.temporal.address == 'temporal:7233'


def test_the_worker_has_the_time_to_drain(settings: Settings) -> None:
    drain = settings.worker.graceful_shutdown_seconds + AFTER_GRACE_SECONDS
    assert float(SERVICES['worker']['stop_grace_period'].removesuffix('s')) > drain
