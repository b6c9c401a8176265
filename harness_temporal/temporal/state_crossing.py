"""Capability state on its way to where a tool runs, and back. Workflow-side; `state_arrival` is the other side."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from temporalio.exceptions import ActivityError, ChildWorkflowError

from harness_temporal.context_variables import having
from harness_temporal.errors import StateError
from harness_temporal.state.capability_state import StateWrite
from harness_temporal.state.context import HarnessContext, running_context
from harness_temporal.step_persistence.carrying import is_carrier, unpack
from harness_temporal.step_persistence.outcomes import give
from harness_temporal.temporal.failures import read_back

STATE_KEY = 'harness_state'
"""Key of a thread's id and capability state in a serialized run context. It is in histories for ever."""


@dataclass
class _Crossing:
    """A tool call that may be sent elsewhere."""

    run_id: str | None
    tool_call_id: str | None
    context: HarnessContext | None
    sent: bool = False
    """What a tool that ran here gave is not looked into: it may look like a carrier."""


_crossing: ContextVar[_Crossing | None] = ContextVar('harness_temporal.state_crossing', default=None)


def send_state(ctx: RunContext[Any]) -> dict[str, Any] | None:
    """Return what the tool call that is being scheduled takes along, if it is one, and its run has state."""
    crossing = _crossing.get()
    if crossing is None or (crossing.run_id, crossing.tool_call_id) != (ctx.run_id, ctx.tool_call_id):
        return None
    crossing.sent = True
    if crossing.context is None:
        return None
    return {'thread_id': crossing.context.thread_id, 'entries': crossing.context.state.dump()}


@dataclass
class StateCrossingToolset(WrapperToolset[AgentDepsT]):
    """Stands directly around a toolset whose calls are sent elsewhere: nobody else sees what their results carry."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call the tool, write what it wrote to the run's state, and give what it gave.

        Raises:
            StateError: The tool raised it where it ran.
        """
        crossing = _Crossing(ctx.run_id, ctx.tool_call_id, running_context(ctx))
        try:
            with having(_crossing, crossing):
                given = await super().call_tool(name, tool_args, ctx, tool)
        except (ActivityError, ChildWorkflowError) as error:
            state_error = read_back(StateError, error.cause)
            if state_error is None:
                raise
            raise state_error from error
        if not crossing.sent or not is_carrier(given):
            return given
        carried = unpack(cast(ToolReturn[Any], given))
        if crossing.context is not None:
            crossing.context.state.apply(map(StateWrite.load, carried.state_writes))
        return give(carried)
