"""Who is told what happens. By default nobody is, which costs the call of an empty method."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

from harness_temporal.context_variables import having

Duplicate: TypeAlias = Literal['tool', 'model']
"""What was not done a second time: a tool call, or a model request."""


class Observer:
    """Is told what happens while it happens. Override what you want to know.

    A method must neither block nor raise. What an activity does again, because its worker died before Temporal heard
    of it, is told again.
    """

    def run_started(self, *, agent: str) -> None:
        """Tell that a run was registered."""

    def run_ended(self, *, agent: str, completed: bool) -> None:
        """Tell that the end of a run was recorded. A suspended run counts as completed."""

    def step_ended(self, *, agent: str) -> None:
        """Tell that a model's response was recorded. A response is a step of its run."""

    def tool_call_ended(self, *, agent: str, tool: str, outcome: str) -> None:
        """Tell that the outcome of a tool call was recorded (`ToolOutcome`)."""

    def unknown_outcome(self, *, agent: str, tool: str) -> None:
        """Tell that a tool call was not made again although its outcome is unknown."""

    def duplicate_suppressed(self, *, agent: str, what: Duplicate) -> None:
        """Tell that a recorded outcome was given instead of making the call again."""

    def store_called(self, *, store: str, operation: str, seconds: float, failed: bool) -> None:
        """Tell how long a store took."""

    def payload_stored(self, *, saved: int, stored: int) -> None:
        """Tell of a payload's bytes: those kept out of the workflow's history, and those new in the media store."""


NOBODY: Final = Observer()
"""Stands for no observer."""
_current: ContextVar[Observer] = ContextVar('harness_temporal.observer', default=NOBODY)


def observer() -> Observer:
    """Return who is told of what the calling code does."""
    return _current.get()


@contextmanager
def observing(told: Observer) -> Generator[None]:
    """Tell `told` of what the code within does. On Temporal `HarnessPlugin(observer=...)` does it for activities."""
    with having(_current, told):
        yield


@contextmanager
def timed(store: object, operation: str) -> Generator[None]:
    """Tell how long the code within took, as an operation of that store."""
    told = _current.get()
    if told is NOBODY:
        yield
        return
    started, failed = time.perf_counter(), True
    try:
        yield
        failed = False
    finally:
        seconds = time.perf_counter() - started
        told.store_called(store=type(store).__name__, operation=operation, seconds=seconds, failed=failed)
