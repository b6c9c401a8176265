"""Parallel tools of a run that end at almost the same time end together. Worker-side.

Each activity that ends on its own costs the workflow a task of its own: three events and a round trip. Tools of one
step mostly take the same time, but their ledger writes, one after another, would pull their ends apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

END_TOGETHER_SECONDS = 0.004
"""How long a tool that has ended waits for its siblings on this worker."""


@dataclass
class _Attempts:
    under_way: int = 0
    none_left: asyncio.Event = field(default_factory=asyncio.Event)


_runs: dict[str, _Attempts] = {}


@contextmanager
def under_way(run_id: str) -> Generator[None]:
    """Count an attempt from its claim to the end of its tool."""
    attempts = _runs.setdefault(run_id, _Attempts())
    attempts.under_way += 1
    try:
        yield
    finally:
        attempts.under_way -= 1
        if not attempts.under_way:
            attempts.none_left.set()
            # A later attempt counts anew.
            _runs.pop(run_id, None)


async def end_together(run_id: str) -> None:
    """Wait a moment for the run's other attempts, if there are any."""
    attempts = _runs.get(run_id)
    if attempts is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TOGETHER_SECONDS):
                await attempts.none_left.wait()
