"""Progress bars on standard error, beside what a pipe reads; none where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

OnProgress: TypeAlias = Callable[[str, int, int | None], None]
"""Is told what is counted, how many are done, and of how many if that is known."""


@contextmanager
def progress_bars() -> Generator[OnProgress]:
    """Give what shows a bar for each thing that is counted."""
    with _progress(
        TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as progress:
        tasks = dict[str, TaskID]()

        def on_progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield on_progress


@contextmanager
def waiting(what: str) -> Generator[None]:
    """Show that something is waited for."""
    with _progress(SpinnerColumn(), TextColumn('{task.description}')) as progress:
        progress.add_task(what, total=None)
        yield


def _progress(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
