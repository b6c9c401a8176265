"""One campaign: everything is started, killed, waited for and checked."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp

from temporalio.client import Client, WorkflowHistory
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RetryConfig

from benchmarks.faults.checks import Findings, check_run
from benchmarks.faults.histories import histories_of
from benchmarks.faults.nemesis import Nemesis
from benchmarks.faults.oracle import oracle
from benchmarks.faults.places import StoreKind, open_place
from benchmarks.faults.plan import PlannedRun, planned_faults, planned_runs, planned_workers
from benchmarks.faults.replaying import replay_all
from benchmarks.faults.runs import Driven, drive
from benchmarks.faults.temporal_server import temporal_server
from benchmarks.faults.workers import WorkerConfig
from harness_temporal.stores.opening import open_store
from harness_temporal.temporal import HarnessPlugin

_TELL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    seed: int
    store: StoreKind
    runs: int
    kills: int
    """Workers that are killed, told to end or stopped while runs are under way."""
    workers: int = 4
    at_once: int = 8
    """Runs under way at the same time."""
    quiet_seconds: float = 180
    """How long healthy workers have to bring what is left to its end. A run that does not get there is lost."""

    def again(self) -> str:
        """Return the command that runs this campaign."""
        return (
            f'uv run python -m benchmarks.faults --seed {self.seed} --store {self.store} --runs {self.runs} '
            f'--kills {self.kills} --workers {self.workers} --at-once {self.at_once}'
        )


@dataclass(frozen=True)
class Report:
    settings: Settings
    seconds: float
    kills: int
    faults: Counter[str]
    runs: Counter[str]
    """How many, by kind and in all; `resumptions`: how often one that had failed or waited was resumed."""
    failures: Counter[str]
    """What failed workflows named as their reason, and how often."""
    effects: int
    repeated_declared: int
    """Effects of declared tools beyond the first of a call."""
    histories: int
    findings: Findings
    folder: Path | None
    """What is left of a campaign that found something: logs and stores."""

    @property
    def passed(self) -> bool:
        return not any(asdict(self.findings).values())


Tell = Callable[[str], None]


async def run_campaign(settings: Settings, tell: Tell = lambda _: None) -> Report:
    """Run it and look at everything that it left. `tell` hears every few seconds how far it is."""
    folder = Path(mkdtemp(prefix='faults-'))
    report = await _run(settings, folder, tell)
    if report.passed:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return report


async def _run(settings: Settings, folder: Path, tell: Tell) -> Report:
    began = time.monotonic()
    async with (
        oracle(folder) as outside,
        open_place(settings.store, folder) as place,
        temporal_server(folder) as server,
    ):
        config = WorkerConfig(
            address=server.proxy.address,
            task_queue='faults',
            store=place.for_workers,
            oracle=outside.socket,
            log=folder / 'workers.log',
        )
        nemesis = Nemesis(config, settings.workers, place, server, outside, planned_workers(settings.seed))
        client = await _connect(server.address)
        try:
            driven = await _drive_all(settings, client, nemesis, tell)
        finally:
            nemesis.end()
        found = Findings()
        histories: list[WorkflowHistory] = []
        store = open_store(place.direct)
        try:
            for run in driven:
                of_run = [await histories_of(client, leg) for leg in run.legs]
                histories += [history for of_leg in of_run for history in of_leg]
                await check_run(store, outside, run, of_run, found)
        finally:
            await store.aclose()
        found.replay_failures = await replay_all(histories, folder / 'replays.log')
    counts = Counter(run.planned.kind for run in driven)
    counts['all'] = len(driven)
    counts['resumptions'] = sum(len(run.legs) - 1 for run in driven)
    return Report(
        settings,
        round(time.monotonic() - began, 1),
        nemesis.kills,
        nemesis.faults,
        counts,
        Counter(leg.failure.partition(':')[0] for run in driven for leg in run.legs if leg.failure is not None),
        outside.effects.total(),
        sum(count - 1 for count in outside.effects.values()),
        len(histories),
        found,
        None if not any(asdict(found).values()) else folder,
    )


async def _connect(address: str) -> Client:
    """Connect a client that asks again soon when the server is back, and says nothing of it meanwhile."""
    return await Client.connect(
        address,
        plugins=[HarnessPlugin()],
        retry_config=RetryConfig(max_interval_millis=500),
        runtime=Runtime(telemetry=TelemetryConfig(logging=None)),
    )


async def _drive_all(settings: Settings, client: Client, nemesis: Nemesis, tell: Tell) -> list[Driven]:
    """Start the runs at the pace of the kills, so that there is always something to lose."""
    ended = asyncio.Event()
    driven: list[Driven] = []

    async def one(planned: PlannedRun) -> None:
        driven.append(await drive(client, 'faults', planned))
        nemesis.budget = (len(driven) + settings.at_once) * settings.kills / settings.runs

    async def start(runs: Sequence[PlannedRun]) -> list[asyncio.Task[None]]:
        tasks: list[asyncio.Task[None]] = []
        for number, planned in enumerate(runs):
            while True:
                going = sum(not task.done() for task in tasks)
                due = number < settings.at_once + nemesis.kills * len(runs) / settings.kills
                if not going or (going < settings.at_once and due):
                    break
                await asyncio.sleep(0.05)
            tasks.append(asyncio.create_task(one(planned)))
        return tasks

    async def until_killed() -> None:
        tasks = await start(planned_runs(settings.seed, settings.runs))
        while nemesis.kills < settings.kills and not all(task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=0.05)
        ended.set()
        await raging
        _, late = await asyncio.wait(tasks, timeout=settings.quiet_seconds)
        for task in late:
            task.cancel()
        await asyncio.wait(tasks)

    nemesis.budget = settings.at_once * settings.kills / settings.runs

    async def tell_how_far() -> None:
        while True:
            tell(f'{nemesis.kills} kills, {len(driven)} runs at their end, {nemesis.oracle.effects.total()} effects')
            await asyncio.sleep(_TELL_SECONDS)

    telling = asyncio.create_task(tell_how_far())
    raging = asyncio.create_task(nemesis.rage(planned_faults(settings.seed), until=ended))
    try:
        await until_killed()
    finally:
        telling.cancel()
        raging.cancel()
    return driven
