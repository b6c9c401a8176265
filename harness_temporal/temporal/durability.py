"""`HarnessDurability`: Pydantic AI's Temporal durability, made to carry this package's boundaries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability, WrapModelRequestHandler
from pydantic_ai.durable_exec.temporal import TemporalDurability, TemporalRunContext
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

from harness_temporal.errors import PERMANENT_ERRORS
from harness_temporal.state.context import PortableState, is_portable
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.step_persistence.host import BoundaryCarrier
from harness_temporal.temporal.run_context import HarnessRunContext
from harness_temporal.temporal.state_crossing import StateCrossingToolset
from harness_temporal.temporal.timestamps import stamp_request

DEFAULT_START_TO_CLOSE_TIMEOUT = timedelta(minutes=10)
"""How long one attempt may take. Long, because a dead worker is noticed by its missing heartbeats."""
DEFAULT_HEARTBEAT_TIMEOUT = timedelta(seconds=30)
"""How long a worker may be silent before its attempt is given to another."""
DEFAULT_RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=[error.__name__ for error in PERMANENT_ERRORS],
)
"""Without a bound, so that a run outlasts any outage of a worker or store. What the run's own code raises is bounded
where it happens: see `boundaries`."""

WORKFLOW_ID_METADATA_KEY = 'temporal.workflow_id'
"""In a run record's metadata: the workflow that the run runs in."""

_RUNS = '_harness_temporal_runs'
"""Attribute of a workflow's instance that counts the agent runs it started."""


class HarnessDurability(TemporalDurability[AgentDepsT], BoundaryCarrier):
    """Runs an agent in Temporal workflows with heartbeats on every activity and with the ledger inside each attempt.

    Args:
        activity_config: Base config of all activities; what it leaves out takes this package's defaults
            (`start_to_close_timeout` 10 min, `heartbeat_timeout` 30 s, retries without a bound).
        toolset_activity_config: Configs per toolset id on top of the base.
        settings: Everything else that `TemporalDurability` takes.

    A retry policy that you give, here or in a tool's `metadata={'temporal': ...}`, decides alone whether a tool that
    raised runs again. Without one, a tool that raised runs again only if it is declared `recovery_retryable`, three
    times at most, and a model request that raised ten times at most.
    """

    def __init__(
        self,
        *,
        activity_config: ActivityConfig | None = None,
        toolset_activity_config: dict[str, ActivityConfig] | None = None,
        run_context_type: type[TemporalRunContext[AgentDepsT]] = HarnessRunContext[AgentDepsT],
        **settings: Any,
    ) -> None:
        given = activity_config or ActivityConfig()
        self.has_retry_policy = 'retry_policy' in given
        """Whether the base config's retry policy is the user's, who then decides about failures."""
        self.toolsets_with_retry_policy = {
            toolset_id for toolset_id, config in (toolset_activity_config or {}).items() if 'retry_policy' in config
        }
        config: ActivityConfig = {
            'start_to_close_timeout': DEFAULT_START_TO_CLOSE_TIMEOUT,
            'heartbeat_timeout': DEFAULT_HEARTBEAT_TIMEOUT,
            'retry_policy': DEFAULT_RETRY_POLICY,
            **given,
        }
        config['retry_policy'] = _with_permanent_errors(config.get('retry_policy'))
        super().__init__(
            activity_config=config,
            toolset_activity_config=toolset_activity_config,
            run_context_type=run_context_type,
            **settings,
        )
        self.defining_module = _defining_module()
        """The module whose import made this object, to be passed through the workflow sandbox."""

    def for_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> AbstractCapability[AgentDepsT]:
        """Bind to the agent, and give it `PortableState` unless it has it: a run in a workflow takes no further one."""
        bound = super().for_agent(agent)
        return bound if is_portable(agent) else CombinedCapability([PortableState[AgentDepsT](), bound])

    # --- ids that replays and resets repeat ---

    def get_default_run_id(self) -> str | None:
        """Return an id that a replay and a reset of the workflow give again, so that the run meets its own records."""
        return self._workflow_scoped_id() if self.in_durable_context else None

    def next_registration_id(self) -> str:
        """Return an id for one agent run of this workflow. See `BoundaryCarrier`."""
        return self._workflow_scoped_id()

    def _workflow_scoped_id(self) -> str:
        # The instance lives as long as the workflow run. `run_id` would change with a reset, a random id too.
        instance = workflow.instance()
        number: int = getattr(instance, _RUNS, 0)
        setattr(instance, _RUNS, number + 1)
        return f'{workflow.info().original_execution_run_id}:{number}'

    # --- what StepPersistence asks ---

    @property
    def carries_boundaries(self) -> bool:
        """Whether this code runs in a workflow. See `BoundaryCarrier`."""
        return self.in_durable_context

    @property
    def is_replaying(self) -> bool:
        """Whether the workflow is being replayed. See `BoundaryCarrier`."""
        return workflow.unsafe.is_replaying()

    def host_metadata(self) -> dict[str, str]:
        """Return the workflow's id. See `BoundaryCarrier`."""
        return {WORKFLOW_ID_METADATA_KEY: workflow.info().workflow_id}

    def runs_in_workflow(self, tool_def: ToolDefinition) -> bool:
        """Whether the tool is opted out of activities, runs as a child workflow, or is never executed here."""
        config = (tool_def.metadata or {}).get('temporal')
        return config is False or (isinstance(config, Mapping) and 'child_workflow' in config)

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Let tool calls that leave the workflow take the run's capability state along, and bring back its writes."""
        if self.in_durable_context:
            toolset = toolset.visit_and_replace(StateCrossingToolset)
        return super().get_wrapper_toolset(toolset)

    async def wrap_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Let the run's frames see the request as it will be sent. As the innermost, this has core's own object."""
        if self.in_durable_context:
            stamp_request(ctx.messages, run_id=ctx.run_id, now=workflow.now())
        watching = [item for item in ctx.capabilities.values() if isinstance(item, StepPersistence)]
        for persistence in watching:
            persistence.sending(request_context)
        try:
            return await super().wrap_model_request(ctx, request_context=request_context, handler=handler)
        finally:
            for persistence in watching:
                persistence.sending(None)


def _with_permanent_errors(policy: RetryPolicy | None) -> RetryPolicy:
    policy = policy or RetryPolicy()
    names = [*(policy.non_retryable_error_types or ()), *(DEFAULT_RETRY_POLICY.non_retryable_error_types or ())]
    return replace(policy, non_retryable_error_types=list(dict.fromkeys(names)))


def _defining_module() -> str | None:
    """Return the module whose import runs the calling code; a module that only imports an agent is not it."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]  # `inspect.currentframe` is the same
    while frame is not None:
        if frame.f_code.co_name == '<module>':
            name = frame.f_globals.get('__name__')
            return name if isinstance(name, str) and name != '__main__' else None
        frame = frame.f_back
    return None
