"""`python -m benchmarks.store_work`: write a run of many steps to one store, and tell in a line of JSON what it took.

It runs in the environment of the peer, once for each package and kind of store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pydantic_ai.messages import ModelMessage

from benchmarks.store_history import last, prompt
from benchmarks.store_times import AROUND, Save, lowest, seconds

COMPARED = 2 * AROUND + 1
"""Steps whose costs are compared."""


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


class Run:
    """One run, written step by step."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._messages: list[ModelMessage] = [prompt()]
        self.taken = 0.0
        """Seconds for all of it so far."""
        self.saves: list[Save] = []
        self.steps: list[float] = []
        """Seconds for all writes of each step."""

    async def begin(self) -> None:
        self.taken += (await seconds(self._writer.begin()))[0]

    async def steps_until(self, last: int) -> None:
        for step in range(len(self.steps) + 1, last + 1):
            self.steps.append((await seconds(self._step(step)))[0])
            self.taken += self.steps[-1]

    async def end(self) -> None:
        self._messages.append(last())
        self.taken += (await seconds(self._writer.end(len(self.steps) + 1, self._messages)))[0]

    async def _step(self, step: int) -> None:
        self.saves.append(await self._writer.step(step, self._messages))

    def costs(self, name: str) -> dict[str, float]:
        """Return what the last steps took."""
        saves = self.saves[-COMPARED:]
        costs = {
            'save': lowest(save.wall for save in saves),
            'commit': lowest(save.commit for save in saves),
            'save_cpu': lowest(save.cpu for save in saves),
            'step': lowest(self.steps[-COMPARED:]),
        }
        return {f'{name}_{cost}_ms': value for cost, value in costs.items()}


async def work(long: Run, short: Run, steps: int, early: int) -> dict[str, float]:
    """Write a run of many steps, and the beginning of another.

    The last steps of both are taken in turn, so that whatever else the machine does meanwhile slows down both alike.
    """
    for run, until in ((long, steps), (short, early + AROUND)):
        await run.begin()
        await run.steps_until(until - COMPARED)
    for left in reversed(range(COMPARED)):
        await short.steps_until(early + AROUND - left)
        await long.steps_until(steps - left)
    await long.end()
    return {'total_s': long.taken} | short.costs('early') | long.costs('late')


async def run(package: str, kind: str, address: str, name: str, *, steps: int, early: int) -> dict[str, float]:
    async with opened(package, kind, address, name) as long, opened(package, kind, address, f'{name}_short') as short:
        return await work(Run(long), Run(short), steps, early)


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
