"""What ends a call or a run because of a payload.

They are Temporal application errors as well, and not retryable: another attempt would meet the same bytes. Temporal's
workers end a workflow or an activity for them wherever that is possible (see `codec`).
"""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from harness_temporal.errors import HarnessError


class PayloadError(HarnessError, ApplicationError):
    """A payload cannot cross the Temporal boundary."""

    def __init__(self, message: str) -> None:
        ApplicationError.__init__(self, message, type=type(self).__name__, non_retryable=True)


class PayloadUnreadableError(PayloadError):
    """A payload cannot be read: a piece of it is missing or damaged, or it needs a key that is not there."""

    def __init__(self, owner: str, reason: str, *, piece: str | None = None) -> None:
        super().__init__(f'A payload of {owner} cannot be read: {reason}')
        self.owner = owner
        self.reason = reason
        self.piece = piece
        """URI of the piece, if one is to blame."""


class PayloadTooLargeError(PayloadError):
    """A value is larger than may cross the Temporal boundary."""

    def __init__(self, owner: str, size: int, limit: int) -> None:
        super().__init__(
            f'A value of {owner} has {size:,} bytes as a payload, and the limit is {limit:,}. Let it return a '
            'reference to what is large, or raise `limit_bytes` of `HarnessPlugin(payloads=PayloadStorage(...))`.'
        )
        self.owner = owner
        self.size = size
        self.limit = limit


class RequestIncompleteError(PayloadError):
    """A model request crossed without the messages of an earlier request, and that one cannot be had."""

    def __init__(self, workflow_id: str, reason: str) -> None:
        super().__init__(f'A model request of workflow {workflow_id!r} cannot be put together: {reason}.')
        self.workflow_id = workflow_id
        self.reason = reason
