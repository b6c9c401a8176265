"""What one save takes, and what the saves near a step take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

AROUND = 5
"""How many saves before and after a step are looked at for its cost."""


@dataclass(frozen=True)
class Save:
    """Seconds."""

    wall: float
    cpu: float
    """Processor time of the writer's process alone: less noisy than the wall, but without waits and servers."""
    commit: float
    """The part of `wall` that the store took."""


async def seconds(work: Awaitable[object]) -> tuple[float, float]:
    """Await something. Returns the seconds that went by, and those of processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - wall, time.process_time() - cpu


def lowest(values: Iterable[float]) -> float:
    """Return the least of what equal work took, in milliseconds: whatever else the machine does only adds to it."""
    return 1000 * min(values)
