"""One campaign: everything is started, killed, waited for and checked."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RetryConfig

from benchmarks.faults.checks import check_run, check_thread
from benchmarks.faults.driving import TASK_QUEUE, Driving, Tell
from benchmarks.faults.findings import Findings
from benchmarks.faults.histories import how_it_went
from benchmarks.faults.nemesis import Nemesis
from benchmarks.faults.oracle import oracle
from benchmarks.faults.places import open_place
from benchmarks.faults.plan import planned_runs, planned_workers
from benchmarks.faults.replaying import replay_all
from benchmarks.faults.settings import Settings
from benchmarks.faults.temporal_server import temporal_server
from benchmarks.faults.threads import DrivenThread
from benchmarks.faults.workers import WorkerConfig
from harness_temporal.temporal import HarnessPlugin


@dataclass(frozen=True)
class Report:
    settings: Settings
    seconds: float
    kills: int
    faults: dict[str, int]
    runs: dict[str, int]
    """How many, by kind and in all; `resumptions`: how often one that had failed or waited was resumed, or a message
    sent again."""
    failures: dict[str, int]
    """What failed workflows and turns named as their reason, and how often."""
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

    def as_json(self) -> dict[str, Any]:
        """Return it as data that JSON takes."""
        document = asdict(self)
        return document | {'folder': str(self.folder) if self.folder is not None else None, 'passed': self.passed}


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
        open_place(settings.store, folder, objects=settings.objects) as place,
        temporal_server(folder) as server,
    ):
        config = WorkerConfig(
            address=server.proxy.address,
            task_queue=TASK_QUEUE,
            store=place.for_workers,
            oracle=outside.socket,
            log=folder / 'workers.log',
        )
        nemesis = Nemesis(config, settings.workers, place, server, outside, planned_workers(settings.seed))
        client = await _connect(server.address)
        driving = Driving(settings, client, nemesis)
        try:
            await driving.drive(planned_runs(settings.seed, settings.runs), tell)
        finally:
            nemesis.end()
        driven = driving.driven
        found = Findings(lost_runs=driving.surprises)
        histories: list[WorkflowHistory] = []
        async with place.direct.opened() as store:
            for run in driven:
                async with asyncio.timeout(settings.quiet_seconds):
                    went = {workflow_id: await how_it_went(client, workflow_id) for workflow_id in run.workflow_ids}
                histories += [history for workflow in went.values() for history in workflow.all_histories()]
                if isinstance(run, DrivenThread):
                    await check_thread(store, outside, run, went[run.planned.workflow_id], found)
                else:
                    await check_run(store, outside, run, went, found)
        found.replay_failures = await replay_all(histories, folder / 'replays.log')
    counts = Counter(run.planned.kind for run in driven)
    counts['all'] = len(driven)
    counts['resumptions'] = sum(run.resumptions for run in driven)
    return Report(
        settings,
        round(time.monotonic() - began, 1),
        nemesis.kills,
        dict(nemesis.faults),
        dict(counts),
        dict(Counter(failure.partition(':')[0] for run in driven for failure in run.failures)),
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
