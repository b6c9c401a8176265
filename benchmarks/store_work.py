"""`python -m benchmarks.store_work`: write a run of many steps to one store, and tell in a line of JSON what it took.

It runs in the environment of the peer, once for each package and kind of store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pydantic_ai.messages import ModelMessage

from benchmarks.store_history import last, prompt
from benchmarks.store_times import Save, around


class Writer(Protocol):
    async def begin(self) -> None: ...

    async def step(self, step: int, messages: list[ModelMessage]) -> Save: ...

    async def end(self, step: int, messages: list[ModelMessage]) -> None: ...


def opened(package: str, kind: str, address: str, name: str) -> AbstractAsyncContextManager[Writer]:
    if package == 'ours':
        from benchmarks import store_ours

        return store_ours.opened(kind, address, name)
    from benchmarks import store_peer

    return store_peer.opened(kind, address, name)


async def work(writer: Writer, steps: int, early: int) -> dict[str, float]:
    messages: list[ModelMessage] = [prompt()]
    saves, whole = list[Save](), list[float]()
    await writer.begin()
    began = time.perf_counter()
    for step in range(1, steps + 1):
        at = time.perf_counter()
        saves.append(await writer.step(step, messages))
        whole.append(time.perf_counter() - at)
    messages.append(last())
    await writer.end(steps + 1, messages)
    total = time.perf_counter() - began
    costs = {
        'save': [save.wall for save in saves],
        'commit': [save.commit for save in saves],
        'save_cpu': [save.cpu for save in saves],
        'step': whole,
    }
    at = {f'early_{name}_ms': around(values, early) for name, values in costs.items()}
    return {'total_s': total} | at | {f'late_{name}_ms': around(values, steps) for name, values in costs.items()}


async def run(package: str, kind: str, address: str, name: str, *, steps: int, early: int) -> dict[str, float]:
    async with opened(package, kind, address, name) as writer:
        return await work(writer, steps, early)


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.store_work')
    parser.add_argument('package', choices=('ours', 'peer'))
    parser.add_argument('kind')
    parser.add_argument('address')
    parser.add_argument('name')
    parser.add_argument('steps', type=int)
    parser.add_argument('early', type=int)
    given = parser.parse_args()
    place = (given.package, given.kind, given.address, given.name)
    print(json.dumps(asyncio.run(run(*place, steps=given.steps, early=given.early))))


if __name__ == '__main__':
    main()
