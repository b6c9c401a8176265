"""What a run gives to its capabilities and tools: the thread it belongs to, and their state."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    ReinjectSystemPrompt,
    ValidatedToolArgs,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed, UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolDefinition,
    ToolDenied,
)

from harness_temporal.context_variables import having
from harness_temporal.errors import StateError
from harness_temporal.state.capability_state import CapabilityState

CAPABILITY_ID = 'harness_temporal.state'


@dataclass(frozen=True)
class HarnessContext:
    """The thread that a capability or tool runs for."""

    thread_id: str
    state: CapabilityState

    @classmethod
    def of(cls, ctx: RunContext[Any]) -> HarnessContext:
        """Find the context of the run that a capability or tool was called in.

        A tool in a Temporal activity finds it too; see `CapabilityState` for what its writes mean. Argument validators
        and event handlers do not find it there.

        Raises:
            StateError: The agent was not run by an `AgentExecutable` (`run_not_active`).
        """
        context = _context_of_sent_call(ctx) or running_context(ctx)
        if context is None:
            raise StateError(
                'run_not_active',
                'There is no state here: run the agent with `AgentExecutable`. In an activity only tools have it, and '
                'only if the agent itself has the capability `PortableState`.',
            )
        return context


def running_context(ctx: RunContext[Any]) -> HarnessContext | None:
    """Return the context that a run in this process has, if an executable runs it."""
    try:
        capability = ctx.capabilities.get(CAPABILITY_ID)
    except UserError:  # a run context that was rebuilt elsewhere has no capabilities
        return None
    setup = capability.setup if isinstance(capability, PortableState) else None
    return setup.context if setup is not None else None


@dataclass(frozen=True)
class _SentCall:
    run_id: str | None
    tool_call_id: str | None
    context: HarnessContext


_sent_call: ContextVar[_SentCall | None] = ContextVar('harness_temporal.state.sent_call', default=None)


@contextmanager
def sent_call(run_id: str | None, tool_call_id: str | None, context: HarnessContext) -> Generator[None]:
    """Let a tool call that runs elsewhere than its run find `context`."""
    with having(_sent_call, _SentCall(run_id, tool_call_id, context)):
        yield


def _context_of_sent_call(ctx: RunContext[Any]) -> HarnessContext | None:
    call = _sent_call.get()
    # Not for a run that the tool starts: that one is no run of this thread.
    if call is None or (call.run_id, call.tool_call_id) != (ctx.run_id, ctx.tool_call_id):
        return None
    return call.context


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """What an executable tells the capability about the run that it starts."""

    context: HarnessContext
    deferred_tools_supported: bool
    requests: Mapping[str, ApprovalRequired | CallDeferred]
    """Restored calls that are recorded to have asked for something: they ask again, without running."""
    renews_system_prompts: bool
    """The history's system prompts give way to those of this run's definition."""


_setups: ContextVar[list[RunSetup]] = ContextVar('harness_temporal.state.setups')
"""At most one: taken by the run that is being started, and by none that starts within it."""


@contextmanager
def starting(setup: RunSetup) -> Generator[None]:
    """Give `setup` to the one run that is started in this block."""
    with having(_setups, [setup]):
        yield


def is_portable(agent: AbstractAgent[Any, Any]) -> bool:
    """Whether the agent has the capability itself."""
    found: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(found.append)
    return any(isinstance(capability, PortableState) for capability in found)


@dataclass
class PortableState(AbstractCapability[AgentDepsT]):
    """What `AgentExecutable` needs inside of a run: capability state, deferred tools, restored calls.

    The executable adds it to agents that do not have it, and `HarnessDurability` to those that run in workflows. In
    runs that no executable starts it does nothing.
    """

    id: str | None = CAPABILITY_ID
    setup: RunSetup | None = field(default=None, init=False, repr=False)
    _prompts: ReinjectSystemPrompt[AgentDepsT] | None = field(default=None, init=False, repr=False)
    _requests: Mapping[str, ApprovalRequired | CallDeferred] = field(
        default_factory=dict[str, ApprovalRequired | CallDeferred], init=False, repr=False
    )

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        """Keep the run's setup on a copy."""
        setups = _setups.get([])
        copy = replace(self)
        if setups:
            copy.setup = setup = setups.pop()
            copy._requests = setup.requests
            if setup.renews_system_prompts:
                copy._prompts = await ReinjectSystemPrompt[AgentDepsT](replace_existing=True).for_run(ctx)
        return copy

    def get_ordering(self) -> CapabilityOrdering:
        """Stand outside of what records tool calls: a call that only asks again did not run."""
        return CapabilityOrdering(position='outermost')

    async def prepare_tools(self, ctx: RunContext[AgentDepsT], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Hide tools that nobody would answer for."""
        if self.setup is None or self.setup.deferred_tools_supported:
            return tool_defs
        return [tool for tool in tool_defs if tool.kind not in ('external', 'unapproved')]

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the system prompts right, and forget the restored calls: the model may use their ids for new ones."""
        self._requests = {}
        if self._prompts is not None:
            return await self._prompts.before_model_request(ctx, request_context)
        return request_context

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Answer what a tool asks for all the same."""
        if self.setup is None or self.setup.deferred_tools_supported:
            return None
        return DeferredToolResults(
            approvals={
                call.tool_call_id: ToolDenied('Nobody can approve calls of this run, so the call was not made.')
                for call in requests.approvals
            },
            calls={
                call.tool_call_id: ToolFailed('Nobody can make external calls for this run, so it has no result.')
                for call in requests.calls
            },
        )

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Repeat a recorded request instead of running the tool that made it."""
        asked = self._requests.get(call.tool_call_id)
        if asked is not None:
            raise asked
        return await handler(args)
