"""Some requests to a media store at a time: more at once would keep others from their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar('T')
R = TypeVar('R')


async def each(do: Callable[[T], Awaitable[R]], items: Iterable[T], *, at_once: int) -> list[R]:
    """Do it for each item, so many at a time, and return the results in order."""
    given, results = list(items), list[R]()
    for start in range(0, len(given), at_once):
        results += await asyncio.gather(*(do(item) for item in given[start : start + at_once]))
    return results
