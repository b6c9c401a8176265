"""Drives all runs of a campaign while the nemesis is at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from temporalio.client import Client

from benchmarks.faults.nemesis import Nemesis
from benchmarks.faults.plan import PlannedRun, planned_faults
from benchmarks.faults.runs import Driven, drive
from benchmarks.faults.settings import Settings
from benchmarks.faults.threads import DrivenThread, drive_thread

TASK_QUEUE = 'faults'
_TELL_SECONDS = 5.0
_POLL = 0.05
Tell = Callable[[str], None]


@dataclass
class Driving:
    """Starts the runs at the pace of the kills, so that there is always something to lose."""

    settings: Settings
    client: Client
    nemesis: Nemesis
    driven: list[Driven | DrivenThread] = field(default_factory=list[Driven | DrivenThread])
    """All that were started, also those that did not get to their end."""
    at_their_end: int = 0
    surprises: list[str] = field(default_factory=list[str])
    """What was raised that a run's host did not expect."""

    async def drive(self, runs: Sequence[PlannedRun], tell: Tell) -> None:
        """Drive them all until as many workers were killed as there are to be, and then until they end.

        `tell` hears every few seconds how far it is.
        """
        killed = asyncio.Event()
        self._allow_kills()
        telling = asyncio.create_task(self._tell_how_far(tell))
        raging = asyncio.create_task(self.nemesis.rage(planned_faults(self.settings.seed), until=killed))
        try:
            tasks = await self._start(runs)
            while self.nemesis.kills < self.settings.kills and not all(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=_POLL)
            killed.set()
            await raging
            await self._wait_for(tasks)
        finally:
            telling.cancel()
            raging.cancel()

    async def _start(self, runs: Sequence[PlannedRun]) -> list[asyncio.Task[None]]:
        at_once = self.settings.at_once
        tasks: list[asyncio.Task[None]] = []
        for number, planned in enumerate(runs):
            while True:
                going = sum(not task.done() for task in tasks)
                due = number < at_once + self.nemesis.kills * len(runs) / self.settings.kills
                if not going or (going < at_once and due):
                    break
                await asyncio.sleep(_POLL)
            tasks.append(asyncio.create_task(self._drive_one(planned)))
        return tasks

    async def _drive_one(self, planned: PlannedRun) -> None:
        if planned.kind == 'thread':
            self.driven.append(thread := DrivenThread(planned))
            await drive_thread(self.client, TASK_QUEUE, thread)
        else:
            self.driven.append(run := Driven(planned))
            await drive(self.client, TASK_QUEUE, run)
        self.at_their_end += 1
        self._allow_kills()

    def _allow_kills(self) -> None:
        settings = self.settings
        self.nemesis.budget = (self.at_their_end + settings.at_once) * settings.kills / settings.runs

    async def _wait_for(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        in_time, late = await asyncio.wait(tasks, timeout=self.settings.quiet_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self.surprises += [repr(error) for task in in_time if (error := task.exception()) is not None]

    async def _tell_how_far(self, tell: Tell) -> None:
        while True:
            effects = self.nemesis.oracle.effects.total()
            tell(f'{self.nemesis.kills} kills, {self.at_their_end} runs at their end, {effects} effects')
            await asyncio.sleep(_TELL_SECONDS)
