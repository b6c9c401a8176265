"""Heartbeats of the activities of this package: Pydantic AI beats for those of agents. Worker-side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import activity

_PER_TIMEOUT = 4
"""Beats within the activity's heartbeat time-out. The SDK passes on what is due."""


@asynccontextmanager
async def heartbeats() -> AsyncGenerator[None]:
    """Tell Temporal meanwhile that the worker lives. An activity without a heartbeat time-out has nobody to tell."""
    timeout = activity.info().heartbeat_timeout
    if not timeout:
        yield
        return

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(timeout.total_seconds() / _PER_TIMEOUT)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
