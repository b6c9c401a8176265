"""Trying a transaction again while other writers are faster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from harness_temporal.errors import StoreUnavailableError

PATIENCE: Final = 75.0
"""Seconds until a write gives up against others. A server keeps the transaction of a dead writer for 60."""


async def until_done(
    attempt: Callable[[], Awaitable[bool]],
    *,
    seconds: float,
    store: str,
    what: str = 'the same',
    longest_pause: float = 1.0,
) -> None:
    """Attempt something until it says that it is done.

    Args:
        attempt: Returns false if another writer was faster.
        seconds: How long to go on.
        store: Whose errors they are.
        what: What the other writers changed.
        longest_pause: How many seconds to wait before the next attempt at most, give or take a half of it.

    Raises:
        StoreUnavailableError: It did not for so long.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.005
    while not await attempt():
        if loop.time() > deadline:
            raise StoreUnavailableError(store, f'other writers changed {what} for {seconds:g} seconds.')
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, longest_pause)
