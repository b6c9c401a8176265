"""`python -m benchmarks.faults`. See docs/faults.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import sysconfig
from dataclasses import asdict
from typing import Any

from benchmarks.driver import leave
from benchmarks.environment import ROOT, worker_python
from benchmarks.faults.campaign import Report, run_campaign
from benchmarks.faults.places import STORES
from benchmarks.faults.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.faults', description=__doc__)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--store', choices=STORES, default='postgres')
    parser.add_argument('--objects', action='store_true', help='keep large values in an object store')
    parser.add_argument('--runs', type=int, default=60)
    parser.add_argument('--kills', type=int, help='by default ten for three runs')
    parser.add_argument('--workers', type=int, default=4, help='processes at work')
    parser.add_argument('--at-once', type=int, default=8, help='runs under way at the same time')
    parser.add_argument('--peer', action='store_true', help='do the same to the peer, and print it beside')
    parser.add_argument('--json', action='store_true')
    given = parser.parse_args()
    kills: int = given.kills if given.kills is not None else max(1, given.runs * 10 // 3)
    settings = Settings(
        seed=given.seed,
        store=given.store,
        objects=given.objects,
        runs=given.runs,
        kills=kills,
        workers=given.workers,
        at_once=given.at_once,
    )
    report = asyncio.run(_until_told_to_stop(settings))
    peer: dict[str, Any] | None = ask_peer(settings) if given.peer else None
    if given.json:
        print(json.dumps({**report.as_json(), 'peer': peer}, indent=2))
    else:
        print(told(report) + (f'\n\npeer: {peer}' if peer is not None else ''))
    if not report.passed:
        print(f'To run it again: {settings.again()}\nWhat it left: {report.folder}', file=sys.stderr)
        sys.exit(1)
    leave()


async def _until_told_to_stop(settings: Settings) -> Report:
    """Run the campaign. SIGTERM ends it as Ctrl+C does, with the servers that it started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run_campaign(settings, lambda text: print(text, file=sys.stderr, flush=True))


def ask_peer(settings: Settings) -> dict[str, Any]:
    """Return what became of the peer, which runs in an environment of its own."""
    numbers = {'seed': settings.seed, 'runs': settings.runs, 'kills': settings.kills, 'workers': settings.workers}
    command = [worker_python(peer=True), '-m', 'benchmarks.faults.peer', json.dumps(numbers)]
    # The Temporal server is of this environment.
    path = os.pathsep.join([sysconfig.get_path('scripts'), os.environ.get('PATH', os.defpath)])
    environment = os.environ | {'PATH': path}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def told(report: Report) -> str:
    """Tell of a campaign in a few lines."""
    settings = report.settings
    where = f'{settings.store} and objects' if settings.objects else settings.store
    lines = [
        f'{where}, seed {settings.seed}: {report.kills} kills over {report.runs["all"]} runs in {report.seconds:.0f} s',
        f'faults: {_counts(report.faults)}',
        f'runs: {_counts(report.runs)}',
        f'workflows and turns that failed and were resumed: {_counts(report.failures) or "none"}',
        f'effects: {report.effects}, of them {report.repeated_declared} repetitions by declared tools',
        f'histories replayed: {report.histories}',
    ]
    for kind, items in asdict(report.findings).items():
        lines.append(f'{kind.replace("_", " ")}: {len(items)}')
        lines += [f'  {item}' for item in items]
    return '\n'.join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ', '.join(f'{count} {name}' for name, count in sorted(counts.items()))


if __name__ == '__main__':
    main()
