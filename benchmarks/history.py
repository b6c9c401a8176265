"""`python -m benchmarks.history`: how far a run gets with payload storage, and what storage and encryption cost.

`alone` is Pydantic AI's `TemporalDurability`; `stored` is this package with payload storage in SQLite; `sealed` also
encrypts. The long shapes have cheap steps: results of a few bytes, so that what grows with the steps is to be seen.
Without storage 1,000 of them do not fit into a Temporal history. Variants take turns, each in a worker process of its
own that is warmed up with a run of another shape.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from benchmarks import driver, report
from benchmarks.agents import RESULT_SIZE
from benchmarks.boundaries import WARM_UP
from benchmarks.environment import worker_python
from benchmarks.measure import RunFigures, cpu_seconds, middle, ratio, run_figures, spread, used
from benchmarks.payloads import payload_bytes, plugin_of
from benchmarks.report import Bar

PAGES, CHEAP = 2048, 16
"""Bytes of a tool's result."""
EARLY, AROUND = 100, 50
"""The step with which the last one is compared, and how many on both sides of it are looked at."""


@dataclass(frozen=True)
class Case:
    variant: str
    steps: int
    result_bytes: int
    repeats: int

    @property
    def name(self) -> str:
        return f'{self.variant} {self.steps}x1, {self.result_bytes} B'


@dataclass(frozen=True)
class Measured:
    run: RunFigures
    payload_bytes: int
    """What the run added to the payload store."""
    cpu_s: float | None
    """Processor time of the worker, which other work on the machine changes less than it changes the wall."""


def cases(repeats: int, long_steps: int) -> list[Case]:
    return [
        *(Case(variant, 20, PAGES, repeats) for variant in ('alone', 'stored', 'sealed')),
        *(Case(variant, 100, PAGES, 1) for variant in ('alone', 'stored', 'sealed')),
        Case('stored', 100, CHEAP, min(3, repeats)),
        Case('stored', long_steps, CHEAP, 1),
    ]


async def measure(server: Client, python: Path, case: Case) -> tuple[Measured, dict[str, str]]:
    os.environ[RESULT_SIZE] = str(case.result_bytes)
    async with driver.bench(server, python, case.variant) as bench:
        if case.variant != 'alone':
            # The result can be read only with the worker's codec.
            target = server.service_client.config.target_host
            client = await Client.connect(target, plugins=[plugin_of(case.variant, bench.store)])
            bench = driver.Bench(client, bench.python, bench.variant, bench.task_queue, bench.store, bench.log)
        async with bench.worker(pass_through=True) as worker:
            await (await bench.start(*WARM_UP)).result()
            before = await payload_bytes(bench.store) if case.variant != 'alone' else 0
            worked = cpu_seconds(worker.pid)
            handle = await bench.start(case.steps, 1)
            await handle.result()
            cpu_s = used(worked, cpu_seconds(worker.pid))
            added = await payload_bytes(bench.store) - before if case.variant != 'alone' else 0
            return Measured(await run_figures(handle), added, cpu_s), worker.versions


def summary(measured: Sequence[Measured], steps: int) -> dict[str, Any]:
    runs = [item.run for item in measured]
    walls = [run.wall_s for run in runs]
    long = runs if steps > EARLY + 3 * AROUND else []
    return {
        'early_step_ms': middle((run.step_ms(steps, EARLY - AROUND, EARLY + AROUND) for run in long), digits=1),
        'late_step_ms': middle((run.step_ms(steps, steps - 2 * AROUND, steps) for run in long), digits=1),
        'history_events': middle((run.history_events for run in runs), digits=0),
        'history_bytes': middle((run.history_bytes for run in runs), digits=0),
        'payload_bytes': middle((item.payload_bytes for item in measured), digits=0),
        'wall_s': middle(walls),
        'wall_s_range': spread(walls),
        'wall_ms_per_step': middle((wall * 1000 / steps for wall in walls), digits=1),
        'cpu_ms_per_step': middle(
            (item.cpu_s * 1000 / steps if item.cpu_s is not None else None for item in measured), digits=1
        ),
        'failed_workflow_tasks': sum(run.failed_workflow_tasks for run in runs),
        'runs': len(runs),
    }


def bars(figures: dict[Case, dict[str, Any]]) -> list[Bar]:
    def of(variant: str, steps: int, result_bytes: int, column: str) -> Any:
        found = [
            item[column]
            for case, item in figures.items()
            if (case.variant, case.steps, case.result_bytes) == (variant, steps, result_bytes)
        ]
        return found[0] if found else None

    long_steps = max(case.steps for case in figures)
    per_ten = long_steps / 1000

    def growth(column: str) -> float | None:
        return ratio(of('stored', long_steps, CHEAP, column), of('stored', 100, CHEAP, column))

    def against_alone(variant: str, steps: int, column: str) -> float | None:
        return ratio(of(variant, steps, PAGES, column), of('alone', steps, PAGES, column))

    return [
        Bar('history bytes, 100x1, stored against alone', 0.06, against_alone('stored', 100, 'history_bytes')),
        Bar(f'history bytes, {long_steps} steps against 100', 11 * per_ten, growth('history_bytes')),
        Bar(f'payload-store bytes, {long_steps} steps against 100', 12 * per_ten, growth('payload_bytes')),
        Bar(
            f'wall per step, at step {long_steps} against step {EARLY}',
            1.5,
            ratio(of('stored', long_steps, CHEAP, 'late_step_ms'), of('stored', long_steps, CHEAP, 'early_step_ms')),
        ),
        Bar('wall, 20x1, sealed against alone', 1.25, against_alone('sealed', 20, 'wall_s')),
    ]


async def run(planned: Sequence[Case], python: Path) -> tuple[dict[str, Any], list[Bar]]:
    measured: dict[Case, list[Measured]] = defaultdict(list)
    versions: dict[str, str] = {}
    async with driver.temporal_server() as client:
        for round_ in range(max(case.repeats for case in planned)):
            for case in planned[:: -1 if round_ % 2 else 1]:
                if round_ >= case.repeats:
                    continue
                done, versions = await measure(client, python, case)
                measured[case].append(done)
                report.progress(f'{case.name}: {done.run.wall_s:.2f} s, {done.run.history_bytes} B')
    figures = {case: summary(measured[case], case.steps) for case in planned}
    columns = [
        'history_events',
        'history_bytes',
        'payload_bytes',
        'wall_s',
        'wall_s_range',
        'wall_ms_per_step',
        'cpu_ms_per_step',
        'early_step_ms',
        'late_step_ms',
    ]
    report.table(
        'runs', ['run', *columns], [[case.name, *(item[name] for name in columns)] for case, item in figures.items()]
    )
    result = {
        'benchmark': 'history',
        'machine': report.machine(versions),
        'runs': [asdict(case) | item for case, item in figures.items()],
    }
    return result, bars(figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.history', description=__doc__)
    parser.add_argument('--json', action='store_true', help='print everything as one JSON object, as the last line')
    parser.add_argument('--repeats', type=int, default=5, help='runs of each variant at 20x1 (default: %(default)s)')
    parser.add_argument('--steps', type=int, default=1000, help='steps of the long run (default: %(default)s)')
    given = parser.parse_args()
    result, judged = asyncio.run(run(cases(given.repeats, given.steps), worker_python(peer=False)))
    report.finish(result, judged, as_json=given.json)
    driver.leave()


if __name__ == '__main__':
    main()
