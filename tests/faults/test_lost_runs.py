"""A campaign tells of runs that do not get to their end, and of hosts that fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from benchmarks.faults import driving
from benchmarks.faults.driving import Driving
from benchmarks.faults.plan import PlannedRun
from benchmarks.faults.runs import Driven, Leg
from benchmarks.faults.settings import Settings

_SETTINGS = Settings(seed=1, store='sqlite', runs=2, kills=1, quiet_seconds=0.01)
_RUNS = [PlannedRun(f'faults-1-{number}', 'plain', 'reporting') for number in range(2)]


class QuietNemesis:
    """Has killed all that it was to."""

    kills = 1
    budget = 0.0

    def __init__(self) -> None:
        self.oracle = type('Nothing', (), {'effects': Counter[str]()})()

    async def rage(self, faults: Any, *, until: asyncio.Event) -> None:
        await until.wait()


def driving_with(monkeypatch: pytest.MonkeyPatch, drive: Any) -> Driving:
    monkeypatch.setattr(driving, 'drive', drive)
    return Driving(_SETTINGS, None, QuietNemesis())  # type: ignore[arg-type]


async def test_a_run_that_does_not_end_is_among_those_that_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drive(client: Any, task_queue: str, driven: Driven) -> None:
        driven.legs.append(Leg(driven.planned.workflow_id))
        if driven.planned is _RUNS[0]:
            await asyncio.Event().wait()
        driven.legs[-1].failure = 'ended'

    campaign = driving_with(monkeypatch, drive)
    await campaign.drive(_RUNS, lambda _: None)
    assert [run.legs[-1].status for run in campaign.driven if isinstance(run, Driven)] == ['lost', 'failed']
    assert campaign.at_their_end == 1


async def test_what_a_host_did_not_expect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drive(client: Any, task_queue: str, driven: Driven) -> None:
        if driven.planned is _RUNS[0]:
            raise LookupError('nobody')

    campaign = driving_with(monkeypatch, drive)
    await campaign.drive(_RUNS, lambda _: None)
    assert campaign.surprises == ["LookupError('nobody')"]
    assert campaign.at_their_end == 1
