"""The calls that a turn waits for, and their answers as they come. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied

from harness_temporal.errors import DeferredResumeError, ThreadError
from harness_temporal.state.deferred import DeferredToolResume, requests_of
from harness_temporal.state.deferred import call_ids as ids_of
from harness_temporal.state.deferred_checks import check_batch
from harness_temporal.state.deferred_documents import read_results, read_resume, resume_document
from harness_temporal.temporal.threads.values import ApprovalPolicy, Asked, PendingCall


@dataclass
class PendingAnswers:
    """A batch of requests that is answered in one or in several parts."""

    requests: DeferredToolRequests
    results: DeferredToolResults
    since: datetime
    reminded: int = 0

    @classmethod
    def read(cls, asked: Asked) -> PendingAnswers:
        """Read what was carried."""
        resume = read_resume(asked.answers)
        return cls(resume.requests, resume.results, asked.since, asked.reminded)

    def dump(self) -> Asked:
        """Return it as it is carried."""
        return Asked(answers=self.document(), since=self.since, reminded=self.reminded)

    def document(self) -> Any:
        """Return what the next run is given, once every call has its answer."""
        return resume_document(DeferredToolResume(self.requests, self.results))

    @property
    def answered(self) -> set[str]:
        """The ids of the calls that have their answers."""
        return {*self.results.calls, *self.results.approvals}

    @property
    def is_complete(self) -> bool:
        """Whether every call has its answer."""
        return self.answered.issuperset(ids_of(self.calls()))

    def calls(self) -> list[ToolCallPart]:
        """Return the calls that are asked about."""
        return [*self.requests.approvals, *self.requests.calls]

    def pending(self, policy: ApprovalPolicy) -> list[PendingCall]:
        """Describe the calls."""
        approvals = {*ids_of(self.requests.approvals)}
        return [
            PendingCall(
                tool_call_id=call.tool_call_id,
                tool=call.tool_name,
                kind='approval' if call.tool_call_id in approvals else 'external',
                arguments=call.args_as_dict(),
                metadata=self.requests.metadata.get(call.tool_call_id, {}),
                since=self.since,
                deadline=self.deadline(policy),
                answered=call.tool_call_id in self.answered,
            )
            for call in self.calls()
        ]

    # --- answers ---

    def add(self, given: DeferredToolResults) -> None:
        """Take answers that `checked_answers` let through."""
        # Each field is a mapping by call; which there are depends on the release of Pydantic AI.
        for item in fields(given):
            getattr(self.results, item.name).update(getattr(given, item.name))

    def give_up(self, text: str) -> None:
        """Deny the approvals and fail the external calls that nobody answered."""
        for call_id in ids_of(self.requests.approvals):
            self.results.approvals.setdefault(call_id, ToolDenied(text))
        for call_id in ids_of(self.requests.calls):
            self.results.calls.setdefault(call_id, ToolFailed(text))

    def withdraw(self, text: str) -> None:
        """Deny every approval, those that were given too, and fail the external calls that have no result."""
        self.results.approvals.clear()
        self.give_up(text)

    # --- time ---

    def deadline(self, policy: ApprovalPolicy) -> datetime | None:
        """Return when nobody waits any longer."""
        return self.since + policy.timeout if policy.timeout is not None else None

    def is_late(self, policy: ApprovalPolicy, now: datetime) -> bool:
        """Whether nobody waits any longer."""
        deadline = self.deadline(policy)
        return deadline is not None and deadline <= now

    def next_reminder(self, policy: ApprovalPolicy) -> datetime | None:
        """Return when the next reminder is due."""
        if policy.remind_every is None or policy.reminder_activity is None:
            return None
        return self.since + policy.remind_every * (self.reminded + 1)

    def note_reminder(self, policy: ApprovalPolicy, now: datetime) -> None:
        """Count the reminder that is due. Those that were missed while no worker ran are not made up for."""
        assert policy.remind_every is not None
        self.reminded = (now - self.since) // policy.remind_every

    def next_event(self, policy: ApprovalPolicy, now: datetime) -> timedelta | None:
        """Return how long there is nothing to do but to wait for answers."""
        due = [moment for moment in (self.deadline(policy), self.next_reminder(policy)) if moment is not None]
        return max(min(due) - now, timedelta(0)) if due else None


def checked_answers(
    pending: PendingAnswers | None, document: Any, answered_before: Collection[str]
) -> DeferredToolResults:
    """Read answers, and make sure that each is one to a call that waits for it.

    Raises:
        ThreadError: `not_waiting`, `answers_invalid`, `answers_empty`, `call_unknown`, `call_answered_twice`,
            `call_already_answered`, `call_of_other_kind`, or the code of a `DeferredResumeError` about one of them.
    """
    try:
        given = read_results(document)
    except DeferredResumeError as error:
        raise ThreadError('answers_invalid', str(error)) from error
    ids = [*given.calls, *given.approvals]
    # A model may use an id again: a call that waits now is not one that was answered before.
    answered = pending.answered if pending is not None else set[str]()
    waiting = {*ids_of(pending.calls())} - answered if pending is not None else set[str]()
    for call_id in ids:
        if call_id in answered or (call_id in answered_before and call_id not in waiting):
            raise _refused('call_already_answered', call_id, 'has its answer already.')
    if pending is None:
        raise ThreadError('not_waiting', 'No turn waits for answers.')
    if not ids:
        raise ThreadError('answers_empty', 'There is no answer to any call.')
    _check_calls(pending, given)
    try:
        check_batch(DeferredToolResume(requests_of(pending.requests, ids) or DeferredToolRequests(), given))
    except DeferredResumeError as error:
        raise ThreadError(error.code, str(error), error.details) from error
    return given


def _check_calls(pending: PendingAnswers, given: DeferredToolResults) -> None:
    approvals = {*ids_of(pending.requests.approvals)}
    calls = {*ids_of(pending.requests.calls)}
    for answers, wanted, other in ((given.approvals, approvals, given.calls), (given.calls, calls, given.approvals)):
        for call_id in answers:
            if call_id not in approvals | calls:
                raise _refused('call_unknown', call_id, 'is none that the turn waits for.')
            if call_id in other:
                raise _refused('call_answered_twice', call_id, 'has two answers.')
            if call_id not in wanted:
                kind = 'an approval' if call_id in approvals else 'an external result'
                raise _refused('call_of_other_kind', call_id, f'waits for {kind}.')


def _refused(code: str, call_id: str, reason: str) -> ThreadError:
    return ThreadError(code, f'Call {call_id!r} {reason}', {'tool_call_id': call_id})
