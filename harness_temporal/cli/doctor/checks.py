"""What a check found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from harness_temporal.cli.failures import explained

CHECK_TIMEOUT: Final = 15.0
"""Seconds that a check may take."""


@dataclass(frozen=True)
class Found:
    """How one thing is. `told` says what to do if it is not well."""

    status: Literal['ok', 'failed', 'skipped']
    told: str


Check: TypeAlias = Callable[[], Awaitable[Found]]


async def tried(check: Check) -> Found:
    """Make a check, whose errors are what it found."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await check()
    except TimeoutError:
        return Found('failed', f'It does not answer within {CHECK_TIMEOUT:.0f} s. Check the network, and its own log.')
    except Exception as error:  # noqa: BLE001  # whatever it is, the other checks go on
        return Found('failed', explained(error) or f'{type(error).__name__}: {error}')
