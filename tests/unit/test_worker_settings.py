from __future__ import annotations

from datetime import timedelta

import pytest

from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal import MaintenanceInput
from workers.settings import WorkerSettings

AGENTS = {'HARNESS_AGENTS': 'a:b, c:d'}


def test_defaults() -> None:
    settings = WorkerSettings.from_environment(AGENTS)
    assert settings == WorkerSettings(agents=('a:b', 'c:d'))
    assert settings.maintenance is None


def test_everything_can_be_set() -> None:
    settings = WorkerSettings.from_environment(
        {
            **AGENTS,
            'TEMPORAL_ADDRESS': 'host:1',
            'TEMPORAL_NAMESPACE': 'n',
            'HARNESS_TASK_QUEUE': 'q',
            'HARNESS_BUILD_ID': 'b',
            'HARNESS_GRACEFUL_SHUTDOWN_SECONDS': '1.5',
            'HARNESS_MAINTENANCE': 'on',
            'HARNESS_MAINTENANCE_HOURS': '12',
            'HARNESS_EXPIRE_AFTER_DAYS': '90',
        }
    )
    assert settings == WorkerSettings(
        agents=('a:b', 'c:d'),
        address='host:1',
        namespace='n',
        task_queue='q',
        build_id='b',
        graceful_shutdown=timedelta(seconds=1.5),
        maintenance=MaintenanceInput(idle_for=timedelta(days=90)),
        maintenance_interval=timedelta(hours=12),
    )


@pytest.mark.parametrize(
    ('environment', 'named'),
    [
        ({'HARNESS_AGENTS': ' , '}, 'HARNESS_AGENTS'),
        ({**AGENTS, 'HARNESS_GRACEFUL_SHUTDOWN_SECONDS': 'soon'}, "HARNESS_GRACEFUL_SHUTDOWN_SECONDS is 'soon'"),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'yes'}, "HARNESS_MAINTENANCE is 'yes'"),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_MAINTENANCE_HOURS': '0'}, 'HARNESS_MAINTENANCE_HOURS'),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_EXPIRE_AFTER_DAYS': '-1'}, 'HARNESS_EXPIRE_AFTER_DAYS'),
        ({**AGENTS, 'HARNESS_MAINTENANCE': 'on', 'HARNESS_EXPIRE_AFTER_DAYS': 'nan'}, 'HARNESS_EXPIRE_AFTER_DAYS'),
        ({**AGENTS, 'HARNESS_EXPIRE_AFTER_DAYS': '3'}, 'needs HARNESS_MAINTENANCE=on'),
    ],
)
def test_a_wrong_setting_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        WorkerSettings.from_environment(environment)
