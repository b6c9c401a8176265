"""Keeps a number of workers at work and does to them, and to the servers, what the plan says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.faults.oracle import Oracle
from benchmarks.faults.places import Place
from benchmarks.faults.plan import Fault, PlannedFault, PlannedWorker
from benchmarks.faults.proxy import Proxy
from benchmarks.faults.temporal_server import TemporalServer
from benchmarks.faults.workers import WorkerConfig, fill_disk, start_worker

_POLL = 0.05
_PATIENCE = 4.0
_DELAY = 0.05
_SERVERS_AGAIN = 2.0
"""Seconds between two faults of servers: what is away all the time proves nothing."""


@dataclass
class Nemesis:
    config: WorkerConfig
    count: int
    """How many workers there are."""
    place: Place
    temporal: TemporalServer
    oracle: Oracle
    workers: Iterator[PlannedWorker]
    start: Callable[[WorkerConfig], BaseProcess] = start_worker
    budget: float = float('inf')
    """How many kills there may be by now, so that they are spread over all runs."""
    faults: Counter[str] = field(default_factory=Counter[str])
    """What was done, by its name. `mine`: a worker died at a chosen boundary. `gave_up`: it found no server, and ended
    as a supervisor is to see it."""
    _processes: list[BaseProcess] = field(default_factory=list[BaseProcess])
    _stopped: set[int] = field(default_factory=set[int])
    _told: set[int] = field(default_factory=set[int])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _effects: int = 0
    """How many there were at the last kill."""
    _surroundings: asyncio.Task[None] | None = None

    @property
    def kills(self) -> int:
        """How often a worker was killed, told to end, or stopped for a while."""
        return sum(self.faults[name] for name in ('kill', 'mine', 'terminate', 'stop'))

    async def rage(self, faults: Iterator[PlannedFault], *, until: asyncio.Event) -> None:
        """Do what is planned until the event is set, then leave healthy workers."""
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep_workers())
            while not until.is_set():
                fault = next(faults)
                with suppress(TimeoutError):
                    await asyncio.wait_for(until.wait(), fault.pause)
                await self._do(fault, until)
            await asyncio.gather(*self._tasks)
            keeping.cancel()
        await self._replace_by_healthy_ones()

    def end(self) -> None:
        """Kill all workers."""
        for process in self._processes:
            process.kill()
            process.join()

    # --- workers ---

    async def _keep_workers(self) -> None:
        while True:
            self._bury()
            while len(self._processes) < self.count:
                planned = next(self.workers)
                await self._start(replace(self.config, mine=planned.mine, clock_shift=planned.clock_shift))
            await asyncio.sleep(_POLL)

    async def _start(self, config: WorkerConfig) -> None:
        if config.clock_shift:
            self.faults['shifted_clock'] += 1
        self._processes.append(await asyncio.to_thread(self.start, config))

    def _bury(self) -> None:
        for process in [process for process in self._processes if process.exitcode is not None]:
            self._processes.remove(process)
            if process.pid not in self._told:
                self.faults['mine' if process.exitcode == -signal.SIGKILL else 'gave_up'] += 1

    async def _replace_by_healthy_ones(self) -> None:
        for process in self._processes:
            if process.is_alive():
                self._tell(process, signal.SIGKILL)
            await asyncio.to_thread(process.join)
        self._bury()
        for _ in range(self.count):
            await self._start(self.config)

    # --- faults ---

    async def _do(self, planned: PlannedFault, until: asyncio.Event) -> None:
        match planned.fault:
            case 'kill' | 'terminate' | 'stop':
                while self.kills >= self.budget and not until.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)
                # Without anything to lose, the faults of servers have to wait too.
                await self._something_happened(until)
                if (victim := self._victim(planned)) is not None:
                    self.faults[planned.fault] += 1
                    self._hit(victim, planned)
            case 'full_disk':
                if self.place.server is None:
                    self._alone(planned.fault, self._fill_disk(planned.lasting))
            case 'restart_store':
                if self.place.server is not None:
                    self._alone(planned.fault, self._restart_store(planned))
            case 'restart_objects':
                if self.place.objects is not None:
                    self._alone(planned.fault, self._restart_objects(self.place.objects, planned.lasting))
            case 'restart_temporal':
                self._alone(planned.fault, self._restart_temporal(planned.lasting))
            case 'delay' | 'hold' | 'cut':
                self._alone(planned.fault, self._disturb(planned))

    async def _something_happened(self, until: asyncio.Event) -> None:
        """Wait until there was an effect since the last kill: however slow the machine is, the runs go on."""
        patience = asyncio.get_running_loop().time() + _PATIENCE
        while self.oracle.effects.total() == self._effects and not until.is_set():
            await asyncio.sleep(_POLL)
            if asyncio.get_running_loop().time() > patience:
                break
        self._effects = self.oracle.effects.total()

    def _hit(self, victim: BaseProcess, planned: PlannedFault) -> None:
        if planned.fault == 'stop':
            self._spawn(self._stop_for_a_while(victim, planned.lasting))
        else:
            self._tell(victim, signal.SIGKILL if planned.fault == 'kill' else signal.SIGTERM)

    def _victim(self, planned: PlannedFault) -> BaseProcess | None:
        able = [
            process
            for process in self._processes
            if process.pid in self.oracle.ready and process.pid not in self._stopped | self._told
        ]
        return able[int(planned.victim * len(able))] if able else None

    def _tell(self, process: BaseProcess, number: signal.Signals) -> None:
        assert process.pid is not None
        self._told.add(process.pid)
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    async def _stop_for_a_while(self, process: BaseProcess, seconds: float) -> None:
        assert process.pid is not None
        self._stopped.add(process.pid)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(process.pid, signal.SIGCONT)
        self._stopped.discard(process.pid)

    async def _fill_disk(self, seconds: float) -> None:
        full = [process for process in self._processes if process.is_alive()]
        for now_full in (True, False):
            for process in full:
                with suppress(ProcessLookupError):
                    fill_disk(process, full=now_full)
            if now_full:
                await asyncio.sleep(seconds)

    async def _restart_store(self, planned: PlannedFault) -> None:
        server = self.place.server
        assert server is not None
        await asyncio.to_thread(server.stop if planned.victim < 0.5 else server.kill)
        await asyncio.sleep(planned.lasting / 3)
        await asyncio.to_thread(server.start)
        await asyncio.sleep(_SERVERS_AGAIN)

    async def _restart_objects(self, objects: Proxy, seconds: float) -> None:
        # Its server keeps everything in memory: clients see of a restart what they see of this.
        await objects.cut(lasting=seconds / 3)
        await asyncio.sleep(_SERVERS_AGAIN)

    async def _restart_temporal(self, seconds: float) -> None:
        await asyncio.to_thread(self.temporal.stop)
        await asyncio.sleep(seconds / 3)
        await asyncio.to_thread(self.temporal.start)
        await asyncio.sleep(_SERVERS_AGAIN)

    async def _disturb(self, planned: PlannedFault) -> None:
        behind = (self.temporal.proxy, self.place.proxy, self.place.objects)
        proxies = [proxy for proxy in behind if proxy is not None]
        disturbed = proxies[int(planned.victim * len(proxies))]
        match planned.fault:
            case 'delay':
                await disturbed.delay(_DELAY, lasting=planned.lasting)
            case 'hold':
                await disturbed.hold(lasting=planned.lasting)
            case _:
                await disturbed.cut(lasting=planned.lasting / 3)

    def _alone(self, fault: Fault, doing: Coroutine[Any, Any, None]) -> None:
        """Let a fault of the surroundings go on beside those of workers, unless there is one already."""
        if self._surroundings is not None and not self._surroundings.done():
            doing.close()
            return
        self.faults[fault] += 1
        self._surroundings = self._spawn(doing)

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
