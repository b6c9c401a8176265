"""Workers that die at a chosen boundary: their store is about to write, or has written, or they are about to report."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Literal, get_args

import temporalio.client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from harness_temporal.records import (
    Batch,
    EncodedSnapshot,
    ModelResponseRecord,
    Record,
    RunRecord,
    ToolEffectRecord,
)
from harness_temporal.stores import StepStore

What = Literal['run', 'snapshot', 'response', 'start', 'end', 'report']
WHAT: tuple[What, ...] = get_args(What)


@dataclass
class Mine:
    """Kills its process at one boundary."""

    what: What
    """What is written there. `report`: an attempt tells Temporal what it did."""
    after: bool
    """Whether it has been written."""
    passes: int
    """How often the process gets past it before."""

    def step_on(self, what: What, *, after: bool) -> None:
        """Pass, or die."""
        if (self.what, self.after) != (what, after):
            return
        self.passes -= 1
        if self.passes < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class MinedStore:
    """A store whose writes are mined."""

    def __init__(self, store: StepStore, mine: Mine) -> None:
        self._store, self._mine = store, mine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, records: Batch) -> None:
        written: set[What] = {what for what in map(_kind, records) if what is not None}
        for what in sorted(written):
            self._mine.step_on(what, after=False)
        await self._store.commit(records)
        for what in sorted(written):
            self._mine.step_on(what, after=True)


def _kind(record: Record) -> What | None:
    match record:
        case RunRecord():
            return 'run'
        case EncodedSnapshot():
            return 'snapshot'
        case ModelResponseRecord():
            return 'response'
        case ToolEffectRecord():
            return 'start' if record.status == 'started' else 'end'
        case _:
            return None


class MinedReports(temporalio.client.Interceptor, Interceptor):
    """Mines the moment between the end of an attempt and its report. Given to the client: outside of the boundaries."""

    def __init__(self, mine: Mine) -> None:
        self._mine = mine

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        mine = self._mine

        class Inbound(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                result = await super().execute_activity(input)
                mine.step_on('report', after=False)
                return result

        return Inbound(next)
