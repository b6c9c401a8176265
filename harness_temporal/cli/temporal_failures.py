"""What a command says of an error that Temporal's client raised."""

from __future__ import annotations

from typing import Final

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TerminatedError,
    TimeoutError,
    WorkflowAlreadyStartedError,
)
from temporalio.exceptions import CancelledError as CanceledFailure
from temporalio.service import RPCError, RPCStatusCode

_HINTS: Final = {
    'SnapshotNotFoundError': ' On the command line: `harness-temporal effects list`, then `--include-interrupted`.',
    'FrontierLostError': ' On the command line: `harness-temporal runs show`, then `fork`.',
    'UnknownToolOutcomeError': ' On the command line: `harness-temporal effects resolve`, then `resume`.',
}
"""What to do about an error of the library, by its type's name."""


def explained_by_temporal(error: Exception) -> str | None:
    """Return what to tell, or `None` if it is not Temporal's."""
    match error:
        case WorkflowFailureError():
            return f'The run failed: {_root(error)}'
        case WorkflowAlreadyStartedError():
            return (
                f'The workflow {error.workflow_id!r} is running, or has completed. Look at it, or give another '
                '`--workflow-id`.'
            )
        case RPCError():
            return _refused(error)
        case _:
            return None


def _root(error: BaseException) -> str:
    # An activity or a child workflow failed with what is told; what that came from is in the UI.
    while isinstance(error, WorkflowFailureError | ActivityError | ChildWorkflowError) and error.__cause__ is not None:
        error = error.__cause__
    match error:
        case ApplicationError():
            hint = _HINTS.get(error.type or '', '')
            return f'{error.type}: {error.message}{hint}' if error.type else error.message
        case CanceledFailure():
            return 'it was cancelled.'
        case TerminatedError():
            return f'it was terminated: {error.message}'
        case TimeoutError():
            return f'it timed out: {error.message}'
        case _:
            return str(error)


def _refused(error: RPCError) -> str:
    hints = {
        RPCStatusCode.NOT_FOUND: ' Check the id, and `--namespace`.',
        RPCStatusCode.PERMISSION_DENIED: ' Check TEMPORAL_API_KEY, or the certificate.',
        RPCStatusCode.UNAUTHENTICATED: ' Set TEMPORAL_API_KEY, or a certificate.',
        RPCStatusCode.UNAVAILABLE: ' Check TEMPORAL_ADDRESS, and that the server runs.',
    }
    return f'Temporal refused: {error.message}.{hints.get(error.status, "")}'
