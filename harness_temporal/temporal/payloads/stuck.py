"""Ends workflows that cannot be replayed because a payload of their history cannot be read.

A workflow that meets such a payload for the first time fails by itself. One that is replayed cannot: a failure where
its history has something else is nondeterminism to the SDK, which fails the task, and the server gives it out again,
for ever. Only termination ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError

from harness_temporal.errors import HarnessError
from harness_temporal.temporal.payloads.errors import PayloadUnreadableError

_COMMANDS: Final = frozenset(
    {
        'activity_task_scheduled_event_attributes',
        'start_child_workflow_execution_initiated_event_attributes',
        'signal_external_workflow_execution_initiated_event_attributes',
    }
)
"""Events whose payloads a replay makes again and does not read."""
_logger = logging.getLogger(__name__)


class StuckWorkflows:
    """Terminates the workflow of an unreadable payload if its task has failed before and its history tells why."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looking: dict[str, asyncio.Task[None]] = {}

    def look_at(self, workflow_id: str) -> None:
        """Look at a workflow, in a task of its own, and at its parent, which reads its result."""
        if workflow_id not in self._looking:
            task = asyncio.get_running_loop().create_task(self._look_at(workflow_id))
            self._looking[workflow_id] = task
            task.add_done_callback(lambda _: self._looking.pop(workflow_id, None))

    async def _look_at(self, workflow_id: str) -> None:
        try:
            parent = await self._end_if_stuck(self._client.get_workflow_handle(workflow_id))
            if parent is not None:
                await self._end_if_stuck(parent)
        except (RPCError, HarnessError):
            # The server or the media store is away, or somebody else was faster. With the next try of the task comes
            # the next look.
            _logger.warning('Workflow %r could not be looked at.', workflow_id, exc_info=True)

    async def _end_if_stuck(self, handle: WorkflowHandle[object, object]) -> WorkflowHandle[object, object] | None:
        """Terminate a workflow if it is stuck. Returns its parent, if it has one."""
        described = await handle.describe()
        info = described.raw_description
        this = self._client.get_workflow_handle(described.id, run_id=described.run_id)
        if described.status == WorkflowExecutionStatus.RUNNING and info.pending_workflow_task.attempt > 1:
            error = await self._first_unreadable(this)
            if error is not None:
                _logger.error('Workflow %r is terminated, because it cannot be replayed.', described.id, exc_info=error)
                await this.terminate(reason=f'The workflow cannot be replayed. {error}')
        parent = info.workflow_execution_info.parent_execution
        return (
            self._client.get_workflow_handle(parent.workflow_id, run_id=parent.run_id) if parent.workflow_id else None
        )

    async def _first_unreadable(self, handle: WorkflowHandle[object, object]) -> PayloadUnreadableError | None:
        codec = self._client.data_converter.with_context(
            WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=handle.id)
        ).payload_codec
        assert codec is not None
        async for event in handle.fetch_history_events():
            if event.WhichOneof('attributes') in _COMMANDS:
                continue
            for payload in payloads_in(event):
                try:
                    await codec.decode([payload])
                except PayloadUnreadableError as error:
                    return error
        return None


def payloads_in(message: Message) -> Iterator[Payload]:
    """Yield every payload in a message."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = value.values() if field.message_type.fields_by_name['value'].message_type is not None else ()
        else:
            values = value if field.is_repeated else (value,)
        for item in values:
            yield from payloads_in(item)
