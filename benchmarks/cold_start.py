"""`python -m benchmarks.cold_start`: 20 runs of two steps wait for a worker; it starts, and they all begin at once.

The time is from when the worker begins to poll (its imports are done) to the end of the last run, as the server saw it.
`alone` is as its users have it: the agent is a module's global, which the workflow sandbox builds again for each run.
`alone_passed_through` is the same with the module passed through the sandbox by hand; this package does that by itself.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from benchmarks import driver, report
from benchmarks.environment import worker_python
from benchmarks.measure import cpu_seconds, middle, ratio, run_figures, spread, used
from benchmarks.report import Bar

RUNS, STEPS, TOOLS = 20, 2, 1
BOUND_S = 400.0
"""When to stop waiting for a variant."""
RATIOS = ('wall_s', 'process_s', 'worker_cpu_s')
VARIANTS = ('alone', 'alone_passed_through', 'ours')


@dataclass(frozen=True)
class Measured:
    wall_s: float
    process_s: float
    """From the start of the process: interpreter and imports too."""
    cpu_s: float | None
    """Processor time of the worker within `wall_s`: less noisy on a busy machine."""
    done: int
    failed_workflow_tasks: int


async def measure(client: Client, python: Path, label: str) -> tuple[Measured, dict[str, str]]:
    variant = label.removesuffix('_passed_through')
    async with driver.bench(client, python, variant) as bench:
        handles = [await bench.start(STEPS, TOOLS) for _ in range(RUNS)]
        async with bench.worker(pass_through=variant != label) as worker:
            cpu_before = cpu_seconds(worker.pid)
            waits = [asyncio.create_task(handle.result()) for handle in handles]
            done, late = await asyncio.wait(waits, timeout=BOUND_S)
            cpu = used(cpu_before, cpu_seconds(worker.pid))
            for wait in done:
                wait.result()
            for wait in late:
                wait.cancel()
            finished = [handle for handle, wait in zip(handles, waits, strict=True) if wait in done]
            figures = [await run_figures(handle) for handle in finished]
            for handle in set(handles) - set(finished):
                await handle.terminate('out of time')
        end = worker.started_at + BOUND_S if late else max(run.closed_at for run in figures)
        failed = sum(run.failed_workflow_tasks for run in figures)
        walls = end - worker.started_at, end - worker.spawned_at
        return Measured(*walls, cpu, len(done), failed), worker.versions


def summary(measured: list[Measured]) -> dict[str, Any]:
    walls = [item.wall_s for item in measured]
    return {
        'wall_s': middle(walls),
        'wall_s_range': spread(walls),
        'process_s': middle(item.process_s for item in measured),
        'worker_cpu_s': middle(item.cpu_s for item in measured),
        'runs_done': min(item.done for item in measured),
        'failed_workflow_tasks': max(item.failed_workflow_tasks for item in measured),
        'repeats': len(measured),
    }


async def run(variants: tuple[str, ...], repeats: int, python: Path) -> tuple[dict[str, Any], list[Bar]]:
    measured: dict[str, list[Measured]] = defaultdict(list)
    versions: dict[str, str] = {}
    async with driver.temporal_server() as client:
        for round_ in range(repeats):
            for label in variants[:: -1 if round_ % 2 else 1]:
                if label == 'peer' and measured[label]:
                    continue
                done, versions = await measure(client, python, label)
                measured[label].append(done)
                report.progress(f'{label}: {done.wall_s:.2f} s, {done.done} of {RUNS} done')
    figures = {label: summary(measured[label]) for label in variants}
    alone = figures['alone']
    for each in figures.values():
        each.update({f'{column}_ratio': ratio(each[column], alone[column]) for column in RATIOS})
    columns = list(alone)
    rows = [[label, *(each[column] for column in columns)] for label, each in figures.items()]
    report.table(f'{RUNS} runs of {STEPS} steps on a cold worker', ['variant', *columns], rows)
    result = {'benchmark': 'cold_start', 'machine': report.machine(versions), 'variants': figures}
    return result, [Bar('cold start of 20 runs', 1.3, figures['ours']['wall_s_ratio'])]


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.cold_start', description=__doc__)
    parser.add_argument('--json', action='store_true', help='print everything as one JSON object, as the last line')
    parser.add_argument('--repeats', type=int, default=5, help='cold workers of each variant (default: %(default)s)')
    parser.add_argument('--peer', action='store_true', help=f'the peer too, once, for at most {BOUND_S:.0f} s')
    given = parser.parse_args()
    variants = (*VARIANTS, 'peer') if given.peer else VARIANTS
    result, judged = asyncio.run(run(variants, given.repeats, worker_python(peer=given.peer)))
    report.finish(result, judged, as_json=given.json)
    driver.leave()


if __name__ == '__main__':
    main()
