"""Wait for answers, and remind somebody meanwhile. Workflow-side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from harness_temporal.temporal.durability import DEFAULT_RETRY_POLICY
from harness_temporal.temporal.threads.approvals import PendingAnswers
from harness_temporal.temporal.threads.values import ApprovalPolicy, ApprovalReminder

_ATTEMPT_TIMEOUT = timedelta(minutes=1)
_TIMEOUT = timedelta(minutes=10)


async def wait_for_answers(
    pending: PendingAnswers, policy: ApprovalPolicy, *, is_over: Callable[[], bool], remind: Callable[[int], None]
) -> None:
    """Wait until it is over. Meanwhile remind by number, and at the deadline give up, which answers every call."""
    while not is_over():
        wait = pending.next_event(policy, workflow.now())
        if wait is None or wait > timedelta(0):
            try:
                await workflow.wait_condition(is_over, timeout=wait, timeout_summary='approvals')
            except TimeoutError:
                continue
        elif pending.is_late(policy, workflow.now()):
            pending.give_up(f'Nobody answered within {policy.timeout}, so the call was not made.')
        else:
            pending.note_reminder(policy, workflow.now())
            remind(pending.reminded)


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
