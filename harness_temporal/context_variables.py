"""Setting a context variable for a block of code."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar('T')


@contextmanager
def having(variable: ContextVar[T], value: T) -> Generator[None]:
    """Have a variable be `value` for the code within."""
    token = variable.set(value)
    try:
        yield
    finally:
        # The collector closes what a worker has dropped in whatever context it runs itself: there is nothing to take
        # back in that one.
        with suppress(ValueError):
            variable.reset(token)
