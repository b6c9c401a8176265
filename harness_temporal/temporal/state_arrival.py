"""Capability state where a sent tool call runs: in an activity, or in a child workflow. `state_crossing` sends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from temporalio.exceptions import ApplicationError

from harness_temporal.errors import StateError
from harness_temporal.state.capability_state import CapabilityState
from harness_temporal.state.context import HarnessContext, sent_call
from harness_temporal.step_persistence.outcomes import with_state_writes
from harness_temporal.temporal.activity_names import TOOL_CALLS
from harness_temporal.temporal.failures import in_full
from harness_temporal.temporal.state_crossing import STATE_KEY


def is_tool_call(name: str, args: Sequence[Any]) -> bool:
    """Whether the activity or workflow of that name runs a tool."""
    return name.endswith(TOOL_CALLS) and bool(args) and hasattr(args[0], 'tool_args')


async def with_state(params: Any, execute: Callable[[], Awaitable[Any]]) -> Any:
    """Run a tool with the state that its call took along. The result carries what it wrote."""
    context: Mapping[str, Any] = params.serialized_run_context
    sent = context.get(STATE_KEY)
    if sent is None:
        return with_state_writes(await execute(), ())
    state = CapabilityState.load(sent['entries'])
    with sent_call(context['run_id'], context['tool_call_id'], HarnessContext(sent['thread_id'], state)):
        given = await execute()
    # A namespace is replaced as a whole: what the tool itself wrote over is of no use to anybody.
    last = {write.namespace: write for write in state.writes}
    return with_state_writes(given, [write.dump() for write in last.values()])


async def telling_state_errors(execute: Callable[[], Awaitable[Any]]) -> Any:
    """Tell a `StateError` in full, so that the workflow raises the same. Another attempt could not mend it."""
    try:
        return await execute()
    except (StateError, ApplicationError) as error:
        told = error if isinstance(error, StateError) else error.__cause__
        if type(told) is not StateError:
            raise
        raise in_full(told) from error
