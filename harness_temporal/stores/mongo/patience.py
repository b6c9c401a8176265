"""Trying a transaction again while other writers are faster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from harness_temporal.errors import StoreUnavailableError

PATIENCE: Final = 75.0
"""Seconds until a write gives up against others. A server keeps the transaction of a dead writer for 60."""
_LONGEST_PAUSE = 1.0


async def until_done(attempt: Callable[[], Awaitable[bool]], *, seconds: float, store: str) -> None:
    """Attempt something until it says that it is done.

    Raises:
        StoreUnavailableError: It did not for so long.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.005
    while not await attempt():
        if loop.time() > deadline:
            raise StoreUnavailableError(store, f'other writers changed the same for {seconds:g} seconds.')
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE)
