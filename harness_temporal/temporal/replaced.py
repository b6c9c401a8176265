"""How an attempt finds out that it was presumed dead and another one has its place. Worker-side.

A tool call does not need it: the ledger takes the word of its holder only. A model's response has no such rule.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from harness_temporal.errors import AttemptReplacedError


def _now() -> tuple[float, float]:
    # The one stands still while a machine is suspended, the other can be set.
    return time.monotonic(), time.time()


def _handed_out() -> tuple[float, float]:
    # A worker may stand still between the two: what it was given meanwhile is old when it begins.
    monotonic, wall = _now()
    return monotonic, min(wall, activity.info().started_time.timestamp())


@dataclass
class Lease:
    """How long an attempt may take for its own before it has to ask. Begins when the server handed it out."""

    _since: tuple[float, float] = field(default_factory=_handed_out)

    async def check(self) -> None:
        """Make sure that the attempt still has its place. Asks the server only if it can have lost it.

        A later attempt always asks: the one before it was silent, and the worker's clock may be wrong.

        Raises:
            AttemptReplacedError: It has not.
            RPCError: The server cannot be asked.
        """
        info = activity.info()
        limits = [limit for limit in (info.heartbeat_timeout, info.start_to_close_timeout) if limit]
        taken = max(now - then for now, then in zip(_now(), self._since, strict=True))
        if not limits or (info.attempt == 1 and taken < min(limits).total_seconds()):
            return
        pending = (await _described()).raw_description.pending_activities
        if not any((item.activity_id, item.attempt) == (info.activity_id, info.attempt) for item in pending):
            raise AttemptReplacedError(info.activity_type, info.attempt)


async def workflow_runs() -> bool:
    """Whether the workflow that scheduled this activity goes on. If that is not to be known now, it may."""
    try:
        return (await _described()).status == WorkflowExecutionStatus.RUNNING
    except RPCError:
        return True


async def _described() -> WorkflowExecutionDescription:
    info = activity.info()
    assert info.workflow_id is not None
    return await activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id).describe()
