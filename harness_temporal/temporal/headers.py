"""What goes along in Temporal headers, so that nobody has to thread it through."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from harness_temporal.step_persistence.context import current_run_id

PARENT_RUN_HEADER = 'harness-parent-run-id'
EXPIRY_HEADER = 'harness-execution-expires-at'
"""Header names. They are in histories for ever."""


def with_parent_run(headers: Mapping[str, Payload], converter: PayloadConverter) -> Mapping[str, Payload]:
    """Add the run that this code runs in."""
    run_id = current_run_id.get()
    return headers if run_id is None else {**headers, PARENT_RUN_HEADER: converter.to_payload(run_id)}


def parent_run(headers: Mapping[str, Payload], converter: PayloadConverter) -> str | None:
    """Read the run that started this workflow or activity."""
    payload = headers.get(PARENT_RUN_HEADER)
    return converter.from_payload(payload, str) if payload is not None else None


def with_expiry(headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
    """Add when the workflow's execution time-out ends, if it has one, for the workflow run that goes on."""
    expiry = execution_expires_at()
    if expiry is None:
        return headers
    return {**headers, EXPIRY_HEADER: workflow.payload_converter().to_payload(expiry.isoformat())}


def execution_expires_at() -> datetime | None:
    """Return when the workflow's execution time-out ends; `None` if it has none. Called in workflow code.

    The time-out spans all workflow runs that continued as new. Temporal tells each of them the whole of it, and only
    when it began itself.
    """
    info = workflow.info()
    payload = info.headers.get(EXPIRY_HEADER)
    if payload is not None:
        return datetime.fromisoformat(workflow.payload_converter().from_payload(payload, str))
    # A child and a workflow that continued as new are told of a time-out of 0 if they have none.
    return info.workflow_start_time + info.execution_timeout if info.execution_timeout else None
