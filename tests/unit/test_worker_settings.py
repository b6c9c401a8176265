from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.settings import TemporalSettings, WorkerSettings
from harness_temporal.temporal import MaintenanceInput
from tests.without_settings import leave_settings
from workers.settings import Settings

AGENTS = {'HARNESS_AGENTS': 'a:b, c:d'}


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in a folder without a file, and without variables of whoever runs the tests."""
    leave_settings(monkeypatch, tmp_path)


def loaded(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], file: str | None = None) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        Path('harness.toml').write_text(file)
    return Settings.load()


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(monkeypatch, AGENTS)
    assert settings.worker.agents == ('a:b', 'c:d')
    assert (settings.temporal.address, settings.temporal.namespace) == ('localhost:7233', 'default')
    assert not settings.temporal.uses_tls
    assert settings.worker.maintenance_input is None
    assert settings.worker.http_address is None


def test_everything_can_be_set_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        **AGENTS,
        'TEMPORAL_ADDRESS': 'host:1',
        'TEMPORAL_NAMESPACE': 'n',
        'TEMPORAL_API_KEY': 'key',
        'HARNESS_PAYLOADS': 'p:q',
        'HARNESS_TASK_QUEUE': 'q',
        'HARNESS_BUILD_ID': 'b',
        'HARNESS_DEPLOYMENT_NAME': 'd',
        'HARNESS_VERSIONING': 'auto-upgrade',
        'HARNESS_MAX_CONCURRENT_ACTIVITIES': '7',
        'HARNESS_MAX_CONCURRENT_WORKFLOW_TASKS': '8',
        'HARNESS_MAX_CACHED_WORKFLOWS': '9',
        'HARNESS_MAX_POLLERS': '10',
        'HARNESS_GRACEFUL_SHUTDOWN_SECONDS': '1.5',
        'HARNESS_MAINTENANCE': 'on',
        'HARNESS_MAINTENANCE_HOURS': '12',
        'HARNESS_EXPIRE_AFTER_DAYS': '90',
        'HARNESS_CONVERSATIONS': 'r:s',
        'HARNESS_EXPIRE_CONVERSATIONS_AFTER_DAYS': '365',
        'HARNESS_EXPIRE_PAYLOADS_AFTER_DAYS': '120',
        'HARNESS_LOG_LEVEL': 'debug',
        'HARNESS_LOG_FORMAT': 'text',
        'HARNESS_HTTP_ADDRESS': ':8080',
        'HARNESS_SDK_METRICS_ADDRESS': '127.0.0.1:9090',
        'HARNESS_TRACING': 'true',
    }
    settings = loaded(monkeypatch, variables)
    assert settings.worker == WorkerSettings(
        agents=('a:b', 'c:d'),
        payloads='p:q',
        task_queue='q',
        build_id='b',
        deployment_name='d',
        versioning='auto-upgrade',
        max_concurrent_activities=7,
        max_concurrent_workflow_tasks=8,
        max_cached_workflows=9,
        max_pollers=10,
        graceful_shutdown_seconds=1.5,
        maintenance=True,
        maintenance_hours=12,
        expire_after_days=90,
        conversations='r:s',
        expire_conversations_after_days=365,
        expire_payloads_after_days=120,
        log_level='DEBUG',
        log_format='text',
        http_address=':8080',
        sdk_metrics_address='127.0.0.1:9090',
        tracing=True,
    )
    assert {WorkerSettings.variable(name) for name in WorkerSettings.model_fields} <= variables.keys()
    assert settings.worker.maintenance_input == MaintenanceInput(
        idle_for=timedelta(days=90),
        payloads_untouched_for=timedelta(days=120),
        conversations_idle_for=timedelta(days=365),
    )
    assert settings.temporal.namespace == 'n'
    assert settings.temporal.uses_tls
    assert "'key'" not in repr(settings)


def test_variables_win_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = '[temporal]\naddress = "file:1"\nnamespace = "file"\n[worker]\nagents = ["a:b"]\ntask_queue = "file"\n'
    settings = loaded(monkeypatch, {'TEMPORAL_ADDRESS': 'variable:1', 'HARNESS_TASK_QUEUE': ''}, file)
    assert (settings.temporal.address, settings.temporal.namespace) == ('variable:1', 'file')
    # An empty variable is one that is not set.
    assert (settings.worker.agents, settings.worker.task_queue) == (('a:b',), 'file')


def test_the_file_can_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / 'other.toml').write_text('[worker]\nagents = ["a:b"]\n')
    assert loaded(monkeypatch, {'HARNESS_CONFIG': str(tmp_path / 'other.toml')}).worker.agents == ('a:b',)


@pytest.mark.parametrize(
    ('environment', 'named'),
    [
        ({}, 'Set HARNESS_AGENTS, or `agents` in .worker. of harness.toml'),
        ({'HARNESS_AGENTS': ' , '}, 'Set HARNESS_AGENTS'),
        ({**AGENTS, 'HARNESS_GRACEFUL_SHUTDOWN_SECONDS': 'soon'}, "HARNESS_GRACEFUL_SHUTDOWN_SECONDS is 'soon'"),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'maybe'}, "HARNESS_MAINTENANCE is 'maybe'"),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_MAINTENANCE_HOURS': '0'}, 'HARNESS_MAINTENANCE_HOURS'),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_EXPIRE_AFTER_DAYS': '-1'}, 'HARNESS_EXPIRE_AFTER_DAYS'),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_EXPIRE_AFTER_DAYS': 'nan'}, 'HARNESS_EXPIRE_AFTER_DAYS'),
        ({**AGENTS, 'HARNESS_EXPIRE_AFTER_DAYS': '3'}, 'HARNESS_EXPIRE_AFTER_DAYS needs HARNESS_MAINTENANCE=on'),
        ({**AGENTS, 'HARNESS_EXPIRE_PAYLOADS_AFTER_DAYS': '3'}, 'PAYLOADS_AFTER_DAYS needs HARNESS_MAINTENANCE=on'),
        ({**AGENTS, 'HARNESS_EXPIRE_CONVERSATIONS_AFTER_DAYS': '3'}, 'needs HARNESS_MAINTENANCE=on'),
        (
            {**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_EXPIRE_CONVERSATIONS_AFTER_DAYS': '3'},
            'needs HARNESS_CONVERSATIONS',
        ),
        ({**AGENTS, 'HARNESS_DEPLOYMENT_NAME': 'd'}, 'needs HARNESS_BUILD_ID'),
        ({**AGENTS, 'HARNESS_DEPLOYMENT_NAME': 'a.b', 'HARNESS_BUILD_ID': '1'}, "HARNESS_DEPLOYMENT_NAME is 'a.b'"),
        ({**AGENTS, 'HARNESS_HTTP_ADDRESS': '8080'}, "HARNESS_HTTP_ADDRESS is '8080': give a host and a port"),
        ({**AGENTS, 'HARNESS_MAX_CONCURRENT_ACTIVITIES': '0'}, 'HARNESS_MAX_CONCURRENT_ACTIVITIES'),
        ({**AGENTS, 'HARNESS_CONFIG': 'gone.toml'}, 'HARNESS_CONFIG names gone.toml, which is not there'),
        ({**AGENTS, 'TEMPORAL_ADDRESS': 'host'}, "TEMPORAL_ADDRESS is 'host'"),
        ({**AGENTS, 'TEMPORAL_TLS_CLIENT_CERT_PATH': 'c'}, 'TEMPORAL_TLS_CLIENT_KEY_PATH go together'),
        ({**AGENTS, 'TEMPORAL_API_KEY': 'secret', 'TEMPORAL_TLS': 'off'}, 'unencrypted'),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        loaded(monkeypatch, environment)
    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize(
    ('file', 'named'),
    [
        ('[worker]\nagent = "a:b"', 'has `agent` in .worker., which is no setting; did you mean `agents`'),
        ('[worker]\nsizes = 1', 'has `sizes` in .worker., which is no setting: there are agents'),
        ('[worker]\ntask_queue = 3', '`task_queue` in .worker. of harness.toml is 3'),
        ('[workers]\nagents = []', "harness.toml has 'workers'; the tables are"),
        ('worker = 1', "a value 'worker' where the table"),
        ('[worker', 'is no TOML'),
        ('[temporal]\napi_key = ["secret"]', '`api_key` in .temporal. of harness.toml: Input should be'),
    ],
)
def test_a_wrong_file_is_explained(monkeypatch: pytest.MonkeyPatch, file: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        loaded(monkeypatch, AGENTS, file)
    assert 'secret' not in str(caught.value)


def test_variables_of_temporals_own_tools_have_their_names() -> None:
    assert {TemporalSettings.variable(name) for name in TemporalSettings.model_fields} == {
        'TEMPORAL_ADDRESS',
        'TEMPORAL_NAMESPACE',
        'TEMPORAL_API_KEY',
        'TEMPORAL_TLS',
        'TEMPORAL_TLS_CLIENT_CERT_PATH',
        'TEMPORAL_TLS_CLIENT_KEY_PATH',
        'TEMPORAL_TLS_SERVER_CA_CERT_PATH',
        'TEMPORAL_TLS_SERVER_NAME',
    }
