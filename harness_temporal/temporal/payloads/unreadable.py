"""Payloads that cannot be read, on their way through an SDK that would try again for ever.

The SDK wraps whatever goes wrong while it decodes an activity's input in an error that is worth a retry. So the codec
gives a marker for such a payload, the payload converter an `Unreadable` for the marker, and `PayloadGuard`, which the
SDK calls once decoding is over, raises the error for it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

import temporalio.client
import temporalio.worker
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload

from harness_temporal.temporal.activity_names import TOOL_CALL
from harness_temporal.temporal.payloads.errors import PayloadUnreadableError
from harness_temporal.temporal.payloads.owners import current_tool
from harness_temporal.temporal.payloads.references import ENCODING

UNREADABLE: Final = b'harness/unreadable'
"""Encoding of the marker. It never leaves the process."""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that could not be read."""

    error: PayloadUnreadableError


def unreadable_payload(error: PayloadUnreadableError) -> Payload:
    """Return the marker for a payload."""
    fields = {'owner': error.owner, 'reason': error.reason, 'piece': error.piece}
    return Payload(metadata={ENCODING: UNREADABLE}, data=json.dumps(fields).encode())


def error_in(payload: Payload) -> PayloadUnreadableError | None:
    """Return the error that a marker stands for; `None` for any other payload."""
    if payload.metadata.get(ENCODING) != UNREADABLE:
        return None
    fields = json.loads(payload.data)
    return PayloadUnreadableError(fields['owner'], fields['reason'], piece=fields['piece'])


def decoded_by_activity_worker() -> bool:
    """Whether the calling code decodes for an activity: on the worker's event loop, and not in a workflow's thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not workflow.in_workflow()


class PayloadGuard(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Ends an activity at once whose input cannot be read, and notes the tool of one that calls a tool."""

    def intercept_activity(
        self, next: temporalio.worker.ActivityInboundInterceptor
    ) -> temporalio.worker.ActivityInboundInterceptor:
        """Put the guard in front of an activity."""
        return _ActivityInbound(next)


class _ActivityInbound(temporalio.worker.ActivityInboundInterceptor):
    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        for value in (*input.args, *activity.info().heartbeat_details):
            if isinstance(value, Unreadable):
                raise value.error
        # Not reset: the result is encoded later, in this task, which is the activity's own.
        current_tool.set(_tool_in(input))
        return await super().execute_activity(input)


def _tool_in(input: temporalio.worker.ExecuteActivityInput) -> str | None:
    name = getattr(input.args[0], 'name', None) if input.args else None
    return name if isinstance(name, str) and activity.info().activity_type.endswith(TOOL_CALL) else None
