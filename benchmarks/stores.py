"""`python -m benchmarks.stores`: what a run of many steps takes in each store, next to the peer's of the same kind.

Each step is a response with one tool call, and a request with its result. Both packages write in the same environment,
to the same servers, each run in a process of its own. What a late step costs is compared with what an early one costs
in another run that is written in turn with it; each is the least of some steps near it. What they make cross the
Temporal boundary is what the activities of a run are given and give, less that of the same run without persistence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import driver, report
from benchmarks.boundaries import Shape, name
from benchmarks.crossing import crossed_bytes
from benchmarks.environment import ROOT
from benchmarks.measure import middle, ratio
from benchmarks.report import Bar
from benchmarks.store_environment import STORES, addresses, store_python
from benchmarks.store_sizes import size

COSTS = ('save', 'commit', 'save_cpu', 'step')
"""A save, the part of it that the store took, its processor time, and all writes of a step."""
FLAT = 1.5
"""How many times the cost of an early save a late one may be."""


@dataclass(frozen=True)
class Plan:
    packages: tuple[str, ...]
    stores: tuple[str, ...]
    repeats: int
    steps: int
    early: int = 10
    crossing: Shape = (20, 1)
    """Steps and tools per step of the runs whose bytes are counted: the peer's grow with the square of the steps."""


async def measure(python: Path, plan: Plan, package: str, store: str, address: str, place: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        python,
        *('-m', 'benchmarks.store_work', package, store, address, place, str(plan.steps), str(plan.early)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f'{package} did not write its run to {store}')
    taken = await size(store, address, place)
    return json.loads(printed) | {
        'left_bytes': taken.left if taken is not None else None,
        'compact_bytes': taken.compact if taken is not None else None,
    }


def summary(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {'total_s': middle(item['total_s'] for item in measured)}
    for cost in COSTS:
        early, late = f'early_{cost}_ms', f'late_{cost}_ms'
        figures |= {column: middle(item[column] for item in measured) for column in (early, late)}
        figures[f'{cost}_ratio'] = ratio(figures[late], figures[early])
    for column in ('left_bytes', 'compact_bytes'):
        figures[column] = middle((item[column] for item in measured), digits=0)
    return figures


async def write(python: Path, plan: Plan) -> dict[str, dict[str, dict[str, Any]]]:
    measured: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    with addresses(plan.stores) as found:
        for store in plan.stores:
            for round_ in range(plan.repeats):
                # The peer's run takes a minute on some stores, and what is judged are our own costs.
                for package in plan.packages if round_ == 0 else ('ours',):
                    place = f'{package}_{round_}'
                    done = await measure(python, plan, package, store, found[store], place)
                    measured[store, package].append(done)
                    report.progress(f'{store} {package}: {done["total_s"]:.2f} s')
    return {store: {package: summary(measured[store, package]) for package in plan.packages} for store in plan.stores}


async def cross(python: Path, plan: Plan) -> dict[str, int]:
    crossed: dict[str, int] = {}
    async with driver.temporal_server() as client:
        for variant in ('alone', *plan.packages):
            crossed[variant] = await crossed_bytes(client, python, variant, plan.crossing)
            report.progress(f'{variant}: {crossed[variant]} bytes crossed')
    return {package: crossed[package] - crossed['alone'] for package in plan.packages}


def bars(plan: Plan, stores: Mapping[str, Mapping[str, Mapping[str, Any]]], crossed: Mapping[str, int]) -> list[Bar]:
    judged: list[Bar] = []
    for store, packages in stores.items():
        ours, peer = packages['ours'], packages.get('peer', {})
        judged += [
            Bar(f"{store}: {column.removesuffix('_bytes')} bytes / peer's", 1.0, ratio(ours[column], peer.get(column)))
            for column in ('left_bytes', 'compact_bytes')
            if ours[column] is not None
        ]
        # A save in memory is nothing but the encoding of what is new and the look at what is not.
        judged += [
            Bar(f'{store}: {cost} at step {plan.steps} / at {plan.early}', FLAT, ours[f'{cost}_ratio'])
            for cost in (('commit',) if store == 'memory' else ('save', 'commit'))
        ]
    judged.append(Bar("bytes across the boundary / peer's", 0.333, ratio(crossed['ours'], crossed.get('peer'))))
    return judged


def show(plan: Plan, stores: Mapping[str, Mapping[str, Mapping[str, Any]]], crossed: Mapping[str, int]) -> None:
    rows = [(store, package, figures) for store, packages in stores.items() for package, figures in packages.items()]
    headings = [(f'{cost} {plan.early}', f'{cost} {plan.steps}', 'x') for cost in COSTS]
    columns = [column for cost in COSTS for column in (f'early_{cost}_ms', f'late_{cost}_ms', f'{cost}_ratio')]
    report.table(
        f'milliseconds at step {plan.early} and at step {plan.steps}',
        ['store', 'package', *chain(*headings)],
        [[store, package, *(figures[column] for column in columns)] for store, package, figures in rows],
    )
    columns = ['total_s', 'left_bytes', 'compact_bytes']
    report.table(
        f'a run of {plan.steps} steps',
        ['store', 'package', 'total s', 'bytes left', 'bytes compact'],
        [[store, package, *(figures[column] for column in columns)] for store, package, figures in rows],
    )
    title = f'bytes across the Temporal boundary, {name(plan.crossing)} (steps x tools)'
    report.table(title, ['package', 'bytes'], list(crossed.items()))


async def run(plan: Plan, python: Path) -> tuple[dict[str, Any], list[Bar]]:
    stores = await write(python, plan)
    crossed = await cross(python, plan)
    show(plan, stores, crossed)
    result = {
        'benchmark': 'stores',
        'machine': report.machine({}),
        'plan': asdict(plan),
        'stores': stores,
        'crossed_bytes': crossed,
    }
    return result, bars(plan, stores, crossed)


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.stores', description=__doc__)
    parser.add_argument('--json', action='store_true', help='print everything as one JSON object, as the last line')
    parser.add_argument('--repeats', type=int, default=3, help='runs of ours on each store (default: %(default)s)')
    parser.add_argument('--steps', type=int, default=200, help='steps of a run (default: %(default)s)')
    parser.add_argument('--stores', nargs='+', choices=STORES, default=STORES, help='kinds of stores (default: all)')
    parser.add_argument('--no-peer', action='store_true', help='without the peer, in the current environment')
    given = parser.parse_args()
    plan = Plan(
        packages=('ours',) if given.no_peer else ('ours', 'peer'),
        stores=tuple(given.stores),
        repeats=given.repeats,
        steps=given.steps,
    )
    result, judged = asyncio.run(run(plan, store_python(peer=not given.no_peer)))
    report.finish(result, judged, as_json=given.json)
    driver.leave()


if __name__ == '__main__':
    main()
