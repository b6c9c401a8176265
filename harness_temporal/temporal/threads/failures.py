"""What is told of a turn that failed. Workflow-side."""

from __future__ import annotations

from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from harness_temporal.errors import SnapshotNotFoundError

_TEXT_CHARACTERS = 2000


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
