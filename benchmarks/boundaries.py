"""`python -m benchmarks.boundaries`: what persistence costs a run, next to the same run without it and to the peer.

One embedded Temporal server; for each run a worker process of its own, warmed up with a run of another shape; variants
take turns, so that a noisy machine is noisy for all of them. The agent's module is passed through the sandbox in every
variant, and every variant has the same time-outs, worker options and build id.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from benchmarks import driver, report
from benchmarks.environment import worker_python
from benchmarks.measure import RunFigures, cpu_seconds, middle, ratio, run_figures, spread, store_bytes, used
from benchmarks.report import Bar

NARROW, WIDE, LONG = (20, 1), (20, 5), (100, 1)
"""Shapes: steps, tools per step."""
WARM_UP = (3, 2)
RATIOS = ('history_events', 'history_bytes', 'wall_s', 'worker_cpu_s')

Shape = tuple[int, int]


@dataclass(frozen=True)
class Measured:
    run: RunFigures
    store_bytes: int
    """What the run added to the store's file: the empty schema and the warm-up are not in it."""
    cpu_s: float | None
    """Processor time of the worker: less noisy than the wall, but without the waits for the disk."""


@dataclass(frozen=True)
class Plan:
    variants: tuple[str, ...]
    shapes: tuple[Shape, ...]
    repeats: int

    def times(self, variant: str, shape: Shape) -> int:
        """Return how often to measure. What is only for information is not worth many minutes."""
        if variant == 'dedicated' and shape != NARROW:
            return 0
        return 1 if variant == 'peer' and shape == LONG else self.repeats

    def turns(self) -> list[tuple[Shape, str]]:
        """Return the runs in order: variants take turns, and in every other round in the opposite order."""
        return [
            (shape, variant)
            for shape in self.shapes
            for round_ in range(self.repeats)
            for variant in self.variants[:: -1 if round_ % 2 else 1]
            if round_ < self.times(variant, shape)
        ]


def name(shape: Shape) -> str:
    return f'{shape[0]}x{shape[1]}'


async def measure(client: Client, python: Path, variant: str, shape: Shape) -> tuple[Measured, dict[str, str]]:
    async with driver.bench(client, python, variant) as bench, bench.worker(pass_through=True) as worker:
        await (await bench.start(*WARM_UP)).result()
        before, cpu_before = store_bytes(bench.store), cpu_seconds(worker.pid)
        handle = await bench.start(*shape)
        await handle.result()
        cpu = used(cpu_before, cpu_seconds(worker.pid))
        added = store_bytes(bench.store) - before
        return Measured(await run_figures(handle), added, cpu), worker.versions


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    runs = [item.run for item in measured]
    walls = [run.wall_s for run in runs]
    return {
        'activities': runs[0].activities,
        'history_events': middle((run.history_events for run in runs), digits=0),
        'history_bytes': middle((run.history_bytes for run in runs), digits=0),
        'wall_s': middle(walls),
        'wall_s_range': spread(walls),
        'worker_cpu_s': middle(item.cpu_s for item in measured),
        'store_bytes': middle((item.store_bytes for item in measured), digits=0),
        'failed_workflow_tasks': sum(run.failed_workflow_tasks for run in runs),
        'runs': len(runs),
    }


def with_ratios(shape: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    alone = shape['alone']
    return {
        variant: figures
        | {'activities_added': figures['activities'] - alone['activities']}
        | {f'{column}_ratio': ratio(figures[column], alone[column]) for column in RATIOS}
        for variant, figures in shape.items()
    }


def growth(shapes: Mapping[str, Mapping[str, Mapping[str, Any]]], variant: str) -> float | None:
    """Return how the store's growth compares with that of the steps: 1 is linear."""
    short, long = (shapes.get(name(shape), {}).get(variant) for shape in (NARROW, LONG))
    if short is None or long is None:
        return None
    return ratio(long['store_bytes'] / short['store_bytes'], LONG[0] / NARROW[0])


def bars(shapes: Mapping[str, Mapping[str, Mapping[str, Any]]], store_growth: float | None) -> list[Bar]:
    def ours(shape: Shape, column: str) -> Any:
        return shapes.get(name(shape), {}).get('ours', {}).get(column)

    return [
        Bar('activities added per run', 2, max(shape['ours']['activities_added'] for shape in shapes.values())),
        *(Bar(f'history events, {name(shape)}', 1.05, ours(shape, 'history_events_ratio')) for shape in (NARROW, WIDE)),
        *(Bar(f'wall, {name(shape)}', 1.15, ours(shape, 'wall_s_ratio')) for shape in (NARROW, LONG)),
        Bar('store bytes per step, 100 steps against 20', 1.2, store_growth),
    ]


def show(shapes: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    measures = ('events', 'history bytes', 'wall s', 'worker cpu s')
    pairs = [cell for text in measures for cell in (text, 'x')]
    headings = ['variant', 'activities', *pairs, 'wall min, max', 'store bytes']
    for title, variants in shapes.items():
        rows = [
            [
                variant,
                figures['activities'],
                *(cell for column in RATIOS for cell in (figures[column], figures[f'{column}_ratio'])),
                figures['wall_s_range'],
                figures['store_bytes'],
            ]
            for variant, figures in variants.items()
        ]
        report.table(f'{title} (steps x tools); x: against alone', headings, rows)


async def run(plan: Plan, python: Path) -> tuple[dict[str, Any], list[Bar]]:
    measured: dict[Shape, dict[str, list[Measured]]] = {shape: defaultdict(list) for shape in plan.shapes}
    versions: dict[str, str] = {}
    async with driver.temporal_server() as client:
        for shape, variant in plan.turns():
            done, versions = await measure(client, python, variant, shape)
            measured[shape][variant].append(done)
            report.progress(f'{name(shape)} {variant}: {done.run.wall_s:.2f} s')
    shapes = {
        name(shape): with_ratios({variant: summary(measured[shape][variant]) for variant in variants})
        for shape in plan.shapes
        if (variants := [variant for variant in plan.variants if measured[shape][variant]])
    }
    growths = {variant: growth(shapes, variant) for variant in plan.variants if variant in ('ours', 'peer')}
    result = {
        'benchmark': 'boundaries',
        'machine': report.machine(versions),
        'plan': asdict(plan),
        'shapes': shapes,
        'store_bytes_growth': growths,
    }
    show(shapes)
    return result, bars(shapes, growths['ours'])


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.boundaries', description=__doc__)
    parser.add_argument('--json', action='store_true', help='print everything as one JSON object, as the last line')
    parser.add_argument('--repeats', type=int, default=5, help='runs of each variant and shape (default: %(default)s)')
    parser.add_argument('--quick', action='store_true', help='one repeat, without 100x1')
    parser.add_argument('--no-peer', action='store_true', help='without the peer, in the current environment')
    given = parser.parse_args()
    plan = Plan(
        variants=('alone', 'ours', *(() if given.no_peer else ('peer',)), 'dedicated'),
        shapes=(NARROW, WIDE) if given.quick else (NARROW, WIDE, LONG),
        repeats=1 if given.quick else given.repeats,
    )
    result, judged = asyncio.run(run(plan, worker_python(peer=not given.no_peer)))
    report.finish(result, judged, as_json=given.json)
    driver.leave()


if __name__ == '__main__':
    main()
