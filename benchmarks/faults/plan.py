"""What a seed makes of a campaign: the runs, and who dies when. The same choices each time, not the same timing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from benchmarks.faults.agents import CAUTIOUS, REPORTING
from benchmarks.faults.mines import WHAT, Mine
from benchmarks.faults.script import Steps, calls, message_prefix
from harness_temporal.temporal.threads.client import thread_workflow_id

Fault = Literal[
    'kill',
    'terminate',
    'stop',
    'full_disk',
    'restart_store',
    'restart_objects',
    'restart_temporal',
    'delay',
    'hold',
    'cut',
]
_FAULTS: dict[Fault, int] = {
    'kill': 60,
    'terminate': 10,
    'stop': 14,
    'full_disk': 4,
    'restart_store': 3,
    'restart_objects': 3,
    'restart_temporal': 2,
    'delay': 3,
    'hold': 2,
    'cut': 4,
}
"""How often each is chosen, by weight."""
_TOOLS = ('pay', 'look', 'archive', 'pay_in_thread', 'delegate')
_MOST_EVENTS = 25
"""Of a history that is to continue as new."""
_KINDS = ('plain', 'parallel', 'large', 'long', 'approval', 'delegation', 'thread')


@dataclass(frozen=True)
class PlannedRun:
    workflow_id: str
    kind: str
    agent: str
    steps: Steps = ()
    messages: tuple[Steps, ...] = ()
    """The steps of each message of a thread."""
    history_events: int | None = None
    """When it goes on in another workflow run."""

    @property
    def thread_id(self) -> str:
        return self.workflow_id.removeprefix(thread_workflow_id(''))

    @property
    def calls(self) -> dict[str, str]:
        """The tools by call id, those of delegates too."""
        found = calls(self.steps)
        for number, steps in enumerate(self.messages):
            found |= calls(steps, message_prefix(number))
        return found


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
    return [_run(chosen, seed, number) for number in range(runs)]


def _run(chosen: random.Random, seed: int, number: int) -> PlannedRun:
    workflow_id = f'faults-{seed}-{number}'

    def steps(count: int, width: int) -> list[list[str]]:
        return [chosen.choices(_TOOLS, (5, 3, 1, 1, 1), k=chosen.randint(1, width)) for _ in range(count)]

    agent = chosen.choice((REPORTING, REPORTING, CAUTIOUS))
    match chosen.choice(_KINDS):
        case 'plain':
            return PlannedRun(workflow_id, 'plain', agent, steps(chosen.randint(2, 6), 1))
        case 'parallel':
            return PlannedRun(workflow_id, 'parallel', agent, steps(chosen.randint(2, 3), 4))
        case 'large':
            large = [['archive', *names] for names in steps(2, 1)]
            return PlannedRun(workflow_id, 'large', agent, [*large, ['pay']])
        case 'long':
            return PlannedRun(workflow_id, 'long', agent, steps(8, 2), history_events=_MOST_EVENTS)
        case 'delegation':
            handing = [['hand_over', *names] for names in steps(2, 1)]
            events = chosen.choice((None, _MOST_EVENTS))
            return PlannedRun(workflow_id, 'delegation', agent, [*handing, ['pay']], history_events=events)
        case 'thread':
            messages = (steps(2, 1), [['ask', 'hand_over'], ['pay']], steps(1, 2))
            events = chosen.choice((None, _MOST_EVENTS))
            thread = thread_workflow_id(f'faults_{seed}x{number}')
            return PlannedRun(thread, 'thread', agent, messages=messages, history_events=events)
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
