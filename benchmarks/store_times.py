"""What one save takes, and what the saves near a step take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from statistics import median

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


def around(values: Sequence[float], step: int) -> float:
    """Return the median, in milliseconds, of what the steps near this one took; the first step is 1."""
    return 1000 * median(values[max(0, step - 1 - AROUND) : step + AROUND])
