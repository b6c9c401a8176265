"""Figures of a run: what Temporal kept of it, how long it took, and what the store takes on disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

FAILED_TASKS = (EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)


@dataclass(frozen=True)
class RunFigures:
    """One workflow run, as the server saw it."""

    activities: int
    history_events: int
    history_bytes: int
    failed_workflow_tasks: int
    started_at: float
    closed_at: float
    activities_ended: Sequence[float]
    """When each activity was completed."""

    @property
    def wall_s(self) -> float:
        return self.closed_at - self.started_at

    def step_ms(self, steps: int, first: int, last: int) -> float:
        """Return what a step of a run of so many equal `steps` took from one of them to another."""
        begin, end = (self.activities_ended[step * len(self.activities_ended) // steps - 1] for step in (first, last))
        return (end - begin) * 1000 / (last - first)


async def run_figures(handle: WorkflowHandle[Any, Any]) -> RunFigures:
    """Read a finished run's figures from the server."""
    described = await handle.describe()
    assert described.close_time is not None
    history = [event async for event in handle.fetch_history_events()]
    events = [event.event_type for event in history]
    return RunFigures(
        activities=events.count(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED),
        history_events=len(events),
        history_bytes=described.raw_info.history_size_bytes,
        failed_workflow_tasks=sum(events.count(kind) for kind in FAILED_TASKS),
        started_at=described.start_time.timestamp(),
        closed_at=described.close_time.timestamp(),
        activities_ended=[
            event.event_time.ToNanoseconds() / 1e9
            for event in history
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
        ],
    )


def store_bytes(path: Path) -> int:
    """Return the size of a SQLite file once all of its write-ahead log is in it; 0 without a file."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        busy, *_ = connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()
    assert not busy, 'a reader kept the write-ahead log from being truncated'
    return path.stat().st_size


def cpu_seconds(pid: int) -> float | None:
    """Return the processor time that a process has used; `None` where the system does not say it this way."""
    try:
        # The command's name, the second field, may hold spaces.
        fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def used(before: float | None, after: float | None) -> float | None:
    return after - before if before is not None and after is not None else None


def middle(values: Iterable[float | None], *, digits: int = 3) -> float | None:
    """Return the median of the values that are there."""
    known = [value for value in values if value is not None]
    return round(median(known), digits) if known else None


def spread(values: Sequence[float], *, digits: int = 3) -> list[float]:
    return [round(min(values), digits), round(max(values), digits)]


def ratio(value: float | None, base: float | None) -> float | None:
    """Return how many times `base` a value is; `None` where either is missing."""
    return round(value / base, 3) if value is not None and base else None
