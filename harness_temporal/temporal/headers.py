"""The parent run's id in Temporal headers, so that nobody has to thread it through."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from harness_temporal.step_persistence.context import current_run_id

PARENT_RUN_HEADER = 'harness-parent-run-id'
"""Header name. It is in histories for ever."""


def with_parent_run(headers: Mapping[str, Payload], converter: PayloadConverter) -> Mapping[str, Payload]:
    """Add the run that this code runs in."""
    run_id = current_run_id.get()
    return headers if run_id is None else {**headers, PARENT_RUN_HEADER: converter.to_payload(run_id)}


def parent_run(headers: Mapping[str, Payload], converter: PayloadConverter) -> str | None:
    """Read the run that started this workflow or activity."""
    payload = headers.get(PARENT_RUN_HEADER)
    return converter.from_payload(payload, str) if payload is not None else None
