"""Errors on their way through Temporal's failures."""

from __future__ import annotations

from typing import TypeVar

from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from harness_temporal.errors import SnapshotNotFoundError, StateError, ThreadError

_CodedT = TypeVar('_CodedT', StateError, ThreadError)
_TEXT_CHARACTERS = 2000


def in_full(error: StateError | ThreadError) -> ApplicationError:
    """Return an error with a code as a failure that `read_back` reads. Another attempt could not mend it."""
    return ApplicationError(str(error), error.code, error.details, type=type(error).__name__, non_retryable=True)


def read_back(kind: type[_CodedT], failure: BaseException | None) -> _CodedT | None:
    """Return the error that was told `in_full`; `None` if the failure is another."""
    if isinstance(failure, ApplicationError) and failure.type == kind.__name__ and len(failure.details) == 2:
        return kind(failure.details[0], failure.message, failure.details[1])
    return None


def told(error: Exception) -> tuple[str, str]:
    """Return the type of what was raised where it happened, and its text."""
    cause: BaseException = error
    while isinstance(cause, ActivityError | ChildWorkflowError) and cause.cause is not None:
        cause = cause.cause
    if isinstance(cause, ApplicationError):
        return cause.type or ApplicationError.__name__, cause.message[:_TEXT_CHARACTERS]
    return type(cause).__name__, str(cause)[:_TEXT_CHARACTERS]


def is_missing_snapshot(error: Exception) -> bool:
    """Whether the run to go on from left nothing: it failed before its first snapshot, and called no tool."""
    return isinstance(error, ActivityError) and told(error)[0] == SnapshotNotFoundError.__name__
