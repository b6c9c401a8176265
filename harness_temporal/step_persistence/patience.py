"""Writes in or after a tool's body, which cannot just begin anew when the store is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from harness_temporal.errors import StoreUnavailableError

WRITE_RETRY_DELAYS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between tries of a write."""


def _nothing() -> None:
    """Nobody needs to hear of it."""


async def write_patiently(write: Callable[[], Awaitable[None]], *, waiting: Callable[[], None] = _nothing) -> None:
    """Write. While the store is away, try again for a while; `waiting` is called whenever a try has failed.

    Raises:
        StoreUnavailableError: The store stayed away for 16 seconds.
    """
    for delay in WRITE_RETRY_DELAYS:
        try:
            return await write()
        except StoreUnavailableError:
            waiting()
            await asyncio.sleep(delay)
    waiting()
    await write()
