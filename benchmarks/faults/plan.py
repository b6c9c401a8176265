"""What a seed makes of a campaign: the runs, and who dies when. The same choices each time, not the same timing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from benchmarks.faults.agents import CAUTIOUS, REPORTING
from benchmarks.faults.mines import WHAT, Mine
from benchmarks.faults.script import Steps

Fault = Literal['kill', 'terminate', 'stop', 'full_disk', 'restart_store', 'restart_temporal', 'delay', 'hold', 'cut']
_FAULTS: dict[Fault, int] = {
    'kill': 60,
    'terminate': 10,
    'stop': 14,
    'full_disk': 4,
    'restart_store': 3,
    'restart_temporal': 2,
    'delay': 3,
    'hold': 2,
    'cut': 4,
}
"""How often each is chosen, by weight."""
_TOOLS = ('pay', 'look', 'archive', 'pay_in_thread', 'delegate')


@dataclass(frozen=True)
class PlannedRun:
    workflow_id: str
    kind: str
    agent: str
    steps: Steps
    history_events: int | None = None
    """When it goes on in another workflow run."""


@dataclass(frozen=True)
class PlannedFault:
    fault: Fault
    pause: float
    """Seconds before it."""
    victim: float
    """Which of those that could be hit, from 0 to 1."""
    lasting: float
    """Seconds that it lasts, where it does."""


@dataclass(frozen=True)
class PlannedWorker:
    mine: Mine | None
    clock_shift: timedelta


def planned_runs(seed: int, runs: int) -> list[PlannedRun]:
    chosen = random.Random(f'runs {seed}')
    return [_run(chosen, f'faults-{seed}-{number}') for number in range(runs)]


def _run(chosen: random.Random, workflow_id: str) -> PlannedRun:
    def steps(count: int, width: int) -> list[list[str]]:
        return [chosen.choices(_TOOLS, (5, 3, 1, 1, 1), k=chosen.randint(1, width)) for _ in range(count)]

    agent = chosen.choice((REPORTING, REPORTING, CAUTIOUS))
    match chosen.choice(('plain', 'parallel', 'large', 'long', 'approval')):
        case 'plain':
            return PlannedRun(workflow_id, 'plain', agent, steps(chosen.randint(2, 6), 1))
        case 'parallel':
            return PlannedRun(workflow_id, 'parallel', agent, steps(chosen.randint(2, 3), 4))
        case 'large':
            large = [['archive', *names] for names in steps(2, 1)]
            return PlannedRun(workflow_id, 'large', agent, [*large, ['pay']])
        case 'long':
            return PlannedRun(workflow_id, 'long', agent, steps(8, 2), history_events=25)
        case _:
            asking = [['ask', *names] for names in steps(2, 1)]
            return PlannedRun(workflow_id, 'approval', agent, [*steps(1, 2), *asking, ['pay']])


def planned_faults(seed: int) -> Iterator[PlannedFault]:
    chosen = random.Random(f'faults {seed}')
    while True:
        [fault] = chosen.choices(list(_FAULTS), list(_FAULTS.values()))
        # A stopped worker is missed after a second: some stops are shorter, most are longer.
        yield PlannedFault(fault, chosen.uniform(0.05, 0.5), chosen.random(), chosen.uniform(0.6, 3.0))


def planned_workers(seed: int) -> Iterator[PlannedWorker]:
    chosen = random.Random(f'workers {seed}')
    while True:
        mine = Mine(chosen.choice(WHAT), after=chosen.random() < 0.5, passes=chosen.randint(0, 20))
        shift = chosen.choice((0, 0, 0, 90, -90, 3_600, -3_600, 86_400))
        yield PlannedWorker(mine if chosen.random() < 0.4 else None, timedelta(seconds=shift))
