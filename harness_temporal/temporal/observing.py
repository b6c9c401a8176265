"""Tells who runs a worker what its activities do: the observer, the logs, the active span. Worker-side."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import temporalio.client
import temporalio.worker
from opentelemetry import trace
from temporalio import activity, workflow

from harness_temporal.observability.logs import FIELDS_ATTRIBUTE, add_log_fields, current_fields
from harness_temporal.observability.observer import NOBODY, Observer, observing
from harness_temporal.temporal.run_context import FRAMES_KEY

SPAN_PREFIX = 'harness.'
"""What the names of our attributes on a span begin with."""
_ON_SPANS = ('run_id', 'agent', 'conversation_id', 'step', 'tool', 'tool_call_id', 'attempt')


class ObservingInterceptor(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Makes known to an activity's code who observes it, and to its logs and its span which run it belongs to.

    Args:
        observer: Is told what happens; nobody by default.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer if observer is not None else NOBODY

    def intercept_activity(
        self, next: temporalio.worker.ActivityInboundInterceptor
    ) -> temporalio.worker.ActivityInboundInterceptor:
        """Observe activities."""
        return _ActivityInbound(next, self._observer)


class _ActivityInbound(temporalio.worker.ActivityInboundInterceptor):
    def __init__(self, next: temporalio.worker.ActivityInboundInterceptor, observer: Observer) -> None:
        super().__init__(next)
        self._observer = observer

    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        fields = {**_activity_fields(activity.info()), **_run_fields(input.args)}
        _mark(trace.get_current_span(), fields)
        # For the rest of the activity's task: the SDK logs a failure after its interceptors have returned.
        add_log_fields(fields)
        with observing(self._observer):
            return await self.next.execute_activity(input)


class RunFields(logging.Filter):
    """Puts the ids of the workflow, the activity and the run onto log records. Add it to a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; let every record through."""
        fields = current_fields()
        if workflow.in_workflow():
            info = workflow.info()
            fields = {
                'workflow_id': info.workflow_id,
                'workflow_run_id': info.run_id,
                'workflow_type': info.workflow_type,
                **fields,
            }
        setattr(record, FIELDS_ATTRIBUTE, fields)
        return True


def _activity_fields(info: activity.Info) -> Mapping[str, object]:
    """Return what tells one attempt of an activity from any other."""
    return {
        'workflow_id': info.workflow_id,
        'workflow_run_id': info.workflow_run_id,
        'workflow_type': info.workflow_type,
        'activity_type': info.activity_type,
        'activity_id': info.activity_id,
        'attempt': info.attempt,
    }


def _run_fields(args: Sequence[Any]) -> Mapping[str, object]:
    """Return what the arguments of an agent's activity say of its run; nothing for any other activity."""
    frame = _frame(args)
    run: Mapping[str, Any] = frame.get('run') or {}
    call: Mapping[str, Any] = frame.get('call') or {}
    request: Mapping[str, Any] = frame.get('request') or {}
    return {
        'run_id': run.get('run_id'),
        'agent': run.get('agent_name'),
        'conversation_id': run.get('conversation_id'),
        'step': call.get('step_index', request.get('step_index')),
        'tool': call.get('tool_name'),
        'tool_call_id': call.get('tool_call_id'),
    }


def _frame(args: Sequence[Any]) -> Mapping[str, Any]:
    params = args[0] if args else None
    context = getattr(params, 'serialized_run_context', None)
    if isinstance(context, dict) and context.get(FRAMES_KEY):  # pyright: ignore[reportUnknownMemberType]
        # Of several `StepPersistence`, the first is the outermost.
        return context[FRAMES_KEY][0]  # pyright: ignore[reportUnknownVariableType]
    # With dedicated boundaries, the operation's own payload says it.
    arguments = getattr(params, 'arguments', None)
    payload = arguments.get('payload') if isinstance(arguments, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return payload if isinstance(payload, dict) and 'run' in payload else {}  # pyright: ignore[reportUnknownVariableType]


def _mark(span: trace.Span, fields: Mapping[str, Any]) -> None:
    if span.is_recording():
        known = {f'{SPAN_PREFIX}{name}': fields[name] for name in _ON_SPANS if fields.get(name) is not None}
        span.set_attributes(known)
