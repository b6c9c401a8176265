"""Hand work of an agent's tool to another agent, in a child workflow. Workflow-side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import to_jsonable_python
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, TimeoutError

from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput
from harness_temporal.temporal.carried_state import SnapshotReference
from harness_temporal.temporal.client import AGENT_RUN_WORKFLOW
from harness_temporal.temporal.failures import told
from harness_temporal.temporal.headers import execution_expires_at
from harness_temporal.temporal.visibility import run_details
from harness_temporal.temporal.visibility.summaries import run_summary

_PER_RUN = {
    'request_limit': 'requests',
    'tool_calls_limit': 'tool_calls',
    'input_tokens_limit': 'input_tokens',
    'output_tokens_limit': 'output_tokens',
    'total_tokens_limit': 'total_tokens',
    'cost_limit': 'cost',
}
"""Fields of `UsageLimits` that bound a whole run, and those of `RunUsage` that they bound."""


@dataclass(frozen=True, kw_only=True)
class Delegated:
    """What a delegate answered."""

    output: Any
    run_id: str
    """`delegate(continue_run=...)` goes on with its work, on any worker."""
    usage: RunUsage = field(default_factory=RunUsage)
    """Counted in the orchestrator's run, too."""


async def delegate(
    ctx: RunContext[Any],
    *,
    agent: str,
    prompt: str,
    deps: Any = None,
    continue_run: str | None = None,
    timeout: timedelta | None = None,
) -> Delegated:
    """Run another agent in a child workflow, for a tool with `metadata={'temporal': False}`.

    The delegate's run has the tool's run as its parent. It is cancelled with it, has what is left of its usage limits,
    and has to end before its deadline and that of the workflow.

    Args:
        ctx: The tool's.
        agent: Name of an agent of the worker.
        prompt: What it is to do.
        deps: Its dependencies as JSON.
        continue_run: `Delegated.run_id` of an earlier piece of work, to go on from where that stood.
        timeout: How long it may take.

    Raises:
        ToolFailed: It failed, ran out of time, or waits for answers that nobody gives here. The model hears of it.
    """
    input = AgentRunInput(
        agent=agent,
        prompt=prompt,
        deps=deps,
        continue_from=SnapshotReference(run_id=continue_run, include_interrupted=True) if continue_run else None,
        usage_limits=_what_is_left(ctx),
    )
    try:
        ended: AgentRunOutput = await workflow.execute_child_workflow(
            AGENT_RUN_WORKFLOW,
            input,
            id=f'{workflow.info().workflow_id}/{agent}-{workflow.uuid4().hex}',
            result_type=AgentRunOutput,
            execution_timeout=_time_left(ctx, timeout),
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            static_summary=run_summary(agent, prompt),
            static_details=run_details.begun(agent, prompt, conversation_id=None, continued=continue_run, forked=None),
        )
    except ChildWorkflowError as error:
        raise _failure(agent, error) from error
    ctx.usage.incr(ended.usage)
    if ended.status != 'completed':
        raise ToolFailed(f'{agent!r} did not finish ({ended.status}). Its work so far is run {ended.run_id!r}.')
    return Delegated(output=ended.output, run_id=ended.run_id, usage=ended.usage)


@dataclass(frozen=True, kw_only=True)
class Delegate:
    """An agent that others may hand work to."""

    agent: str
    """Name of an agent of the worker."""
    description: str
    """What the model is told that it is for."""
    deps: Any = None
    """Its dependencies as JSON."""
    timeout: timedelta | None = None


def delegation_toolset(*delegates: Delegate, id: str = 'delegates') -> FunctionToolset[Any]:
    """Return a tool `delegate_to_<agent>` for each delegate. Its result has the run id to go on with."""
    toolset = FunctionToolset[Any](id=id, metadata={'temporal': False})
    for item in delegates:
        toolset.add_function(_tool(item), name=f'delegate_to_{item.agent}', description=item.description)
    return toolset


def _tool(item: Delegate) -> Any:
    async def delegate_to(ctx: RunContext[Any], prompt: str, continue_run: str | None = None) -> dict[str, Any]:
        """Hand work over.

        Args:
            ctx: The run.
            prompt: What to do. It knows nothing but this, and what it did in `continue_run`.
            continue_run: The `run_id` of an earlier result, to go on with that work.
        """
        done = await delegate(
            ctx,
            agent=item.agent,
            prompt=prompt,
            deps=item.deps,
            continue_run=continue_run,
            timeout=item.timeout,
        )
        return {'output': to_jsonable_python(done.output), 'run_id': done.run_id}

    return delegate_to


def _what_is_left(ctx: RunContext[Any]) -> UsageLimits | None:
    """Return the run's limits less what it has used. Delegates at the same time have each as much."""
    limits = ctx.usage_limits
    if limits is None:
        return None
    bounds = {name: getattr(limits, name, None) for name in _PER_RUN}
    left: dict[str, Any] = {
        name: max(bound - (getattr(ctx.usage, _PER_RUN[name]) or 0), 0)
        for name, bound in bounds.items()
        if bound is not None
    }
    return replace(limits, **left)


def _time_left(ctx: RunContext[Any], timeout: timedelta | None) -> timedelta | None:
    info, now = workflow.info(), workflow.now()
    ends = [
        ctx.deadline,
        # Told as 0 where there is none, as in `execution_expires_at`.
        info.workflow_start_time + info.run_timeout if info.run_timeout else None,
        execution_expires_at(),
    ]
    bounds = [timeout, *(end - now for end in ends if end is not None)]
    known = [bound for bound in bounds if bound is not None]
    # Temporal takes no time for no bound.
    return max(min(known), timedelta(milliseconds=1)) if known else None


def _failure(agent: str, error: ChildWorkflowError) -> ToolFailed:
    if isinstance(error.cause, TimeoutError):
        return ToolFailed(f'{agent!r} did not end in time, and was stopped.')
    kind, text = told(error)
    return ToolFailed(f'{agent!r} failed with {kind}: {text}')
