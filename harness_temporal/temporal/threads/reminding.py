"""Remind somebody of a turn that waits. Workflow-side."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from harness_temporal.temporal.durability import DEFAULT_RETRY_POLICY
from harness_temporal.temporal.threads.values import ApprovalReminder

_ATTEMPT_TIMEOUT = timedelta(minutes=1)
_TIMEOUT = timedelta(minutes=10)


class Reminders:
    """Calls an activity of the user's, and does not wait for it."""

    def __init__(self, activity: str | None) -> None:
        self._activity = activity
        self._under_way: set[asyncio.Task[None]] = set()

    def send(self, reminder: ApprovalReminder) -> None:
        """Start the activity. That it failed is logged, and changes nothing."""
        task = asyncio.create_task(self._call(reminder))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _call(self, reminder: ApprovalReminder) -> None:
        assert self._activity is not None
        try:
            await workflow.execute_activity(
                self._activity,
                reminder,
                start_to_close_timeout=_ATTEMPT_TIMEOUT,
                schedule_to_close_timeout=_TIMEOUT,
                retry_policy=DEFAULT_RETRY_POLICY,
                summary=f'reminder {reminder.number} of {len(reminder.pending)} calls that wait',
            )
        except ActivityError:
            workflow.logger.warning('reminder %d failed', reminder.number, exc_info=True)
