"""Puts the messages of a model request together again, of what crossed and of earlier requests. Worker-side.

A worker remembers the requests that it saw. What it does not remember, because another worker had the earlier request
or it was long ago, is in the history of the workflow: each request that was scheduled, with what crossed of it. It is
read backwards up to the first request that is known, so that workers who take turns read little.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.converter import ActivitySerializationContext
from temporalio.service import RPCError, RPCStatusCode

from harness_temporal.recent import Recent
from harness_temporal.temporal.activity_names import MODEL_REQUESTS
from harness_temporal.temporal.payloads.errors import RequestIncompleteError
from harness_temporal.temporal.payloads.unreadable import Unreadable
from harness_temporal.temporal.sent_requests import REQUEST_KEY, Crossing
from harness_temporal.unchanged import Watch

_REMEMBERED: Final = 64 * 1024 * 1024
"""Bytes of memory, about, that the messages take which a worker remembers."""
_OVERHEAD: Final = 2048
"""Bytes that a message and its watch take in memory beside its JSON, about."""


@dataclass(frozen=True, kw_only=True)
class _Part(Crossing):
    messages: list[ModelMessage]
    """Those that crossed."""


@dataclass(frozen=True)
class _Received:
    messages: Sequence[ModelMessage]
    size: int
    """Bytes of memory that the messages take, about."""
    watch: Watch
    """Of the messages: a model is given these very objects, and might change one."""


_NOTHING: Final = _Received((), 0, Watch())


class ReceivedRequests:
    """The model requests that a worker saw last."""

    def __init__(self) -> None:
        self._known = Recent[tuple[str, int], _Received](_REMEMBERED, lambda request: request.size)

    async def restore(self, args: Sequence[Any]) -> None:
        """Give the running activity's model request, its first argument, all of its messages.

        Raises:
            RequestIncompleteError: An earlier request is not in the workflow's history.
            PayloadUnreadableError: It is, and cannot be read.
            RPCError: The server is away. Another attempt is worth it.
        """
        part = _taken(args[0]) if args else None
        if part is None:
            return
        run = activity.info().workflow_run_id
        assert run is not None
        request = self._remembered(run, part.number)
        if request is None:
            parts, earlier = [part], _parts_before(run, cast(type[Any], type(args[0])))
            while (request := self._start_of(run, parts[-1])) is None:
                parts.append(await _numbered(parts[-1].base, earlier))
            for part in reversed(parts):
                request = self._extended(run, request, part)
        args[0].messages = [*request.messages]

    def _start_of(self, run: str, part: _Part) -> _Received | None:
        return _NOTHING if part.base is None else self._remembered(run, part.base)

    def _remembered(self, run: str, number: int) -> _Received | None:
        request = self._known.get((run, number))
        if request is not None and request.watch.unchanged() < len(request.messages):
            self._known.drop((run, number))
            return None
        return request

    def _extended(self, run: str, request: _Received, part: _Part) -> _Received:
        kept = request.messages[: part.kept]
        size = request.size * len(kept) // max(1, len(request.messages))
        size += len(ModelMessagesTypeAdapter.dump_json(part.messages, warnings=False)) + _OVERHEAD * len(part.messages)
        if part.base is not None and len(kept) == len(request.messages):
            # As `SentRequests` does: what begins like the base begins like this one.
            self._known.drop((run, part.base))
            watch, new = request.watch, part.messages
        else:
            watch, new = Watch(), [*kept, *part.messages]
        for message in new:
            if not watch.add(message):
                watch.skip()
        extended = _Received([*kept, *part.messages], size, watch)
        self._known.put((run, part.number), extended)
        return extended


async def _numbered(number: int | None, parts: AsyncIterator[_Part]) -> _Part:
    """Return the part of a request, and leave those after it."""
    async for part in parts:
        if part.number == number:
            return part
    raise RequestIncompleteError(activity.info().workflow_id or '', f'request {number} is not in its history')


async def _parts_before(run: str, kind: type[Any]) -> AsyncIterator[_Part]:
    """Yield the model requests of the running activity's workflow, the newest first."""
    info, client = activity.info(), activity.client()
    assert info.workflow_id is not None
    converter = client.data_converter.with_context(
        ActivitySerializationContext(
            namespace=client.namespace,
            activity_id=info.activity_id,
            activity_type=info.activity_type,
            activity_task_queue=info.task_queue,
            workflow_id=info.workflow_id,
            workflow_type=info.workflow_type,
            is_local=False,
        )
    )
    asked = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=info.workflow_id, run_id=run)
    )

    async def params_of(scheduled: ActivityTaskScheduledEventAttributes) -> Any:
        values = await converter.decode(scheduled.input.payloads, [kind])
        if isinstance(values[0], Unreadable):
            raise values[0].error
        return values[0]

    while True:
        try:
            page = await client.workflow_service.get_workflow_execution_history_reverse(asked, retry=True)
        except RPCError as error:
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                reason = 'its server cannot read a history backwards'
                raise RequestIncompleteError(info.workflow_id, reason) from error
            raise
        # A long history takes longer than a heartbeat may.
        activity.heartbeat()
        scheduled = [
            event.activity_task_scheduled_event_attributes
            for event in page.history.events
            if event.activity_task_scheduled_event_attributes.activity_type.name.endswith(MODEL_REQUESTS)
        ]
        for params in await asyncio.gather(*map(params_of, scheduled)):
            part = _taken(params)
            if part is not None:
                yield part
        if not page.next_page_token:
            return
        asked.next_page_token = page.next_page_token


def _taken(params: Any) -> _Part | None:
    """Take what says how a request crossed out of its parameters; `None` if it crossed whole."""
    context = getattr(params, 'serialized_run_context', None)
    crossing = cast(dict[str, Any], context).pop(REQUEST_KEY, None) if isinstance(context, dict) else None
    return None if crossing is None else _Part(**crossing, messages=params.messages)
