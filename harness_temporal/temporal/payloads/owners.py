"""Whose payload it is, for the messages of errors."""

from __future__ import annotations

from contextvars import ContextVar

from temporalio.converter import ActivitySerializationContext, SerializationContext, WorkflowSerializationContext

current_tool: ContextVar[str | None] = ContextVar('harness_payload_tool', default=None)
"""The tool that the current activity calls. The SDK encodes an activity's result in the task that ran it."""


def owner_of(context: SerializationContext | None) -> str:
    """Name the workflow, activity and tool that a payload belongs to, as far as they are known."""
    match context:
        case ActivitySerializationContext():
            tool = current_tool.get()
            names = [f'tool {tool!r}'] if tool is not None else []
            names += [f'activity {context.activity_type or context.activity_id!r}']
            names += [f'workflow {context.workflow_id!r}'] if context.workflow_id else []
            return ' of '.join(names)
        case WorkflowSerializationContext():
            return f'workflow {context.workflow_id!r}'
        case _:
            return 'an unknown workflow'


def is_activity_of_workflow(context: SerializationContext | None) -> bool:
    """Whether the payload goes between a workflow and its activity: no client has such payloads."""
    return isinstance(context, ActivitySerializationContext) and context.workflow_id is not None


def workflow_of(context: SerializationContext | None) -> str | None:
    """Return the id of the workflow that a payload belongs to, if it is known."""
    known = isinstance(context, (ActivitySerializationContext, WorkflowSerializationContext))
    return context.workflow_id if known else None
