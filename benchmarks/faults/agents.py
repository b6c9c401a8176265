"""The agents of a worker of the campaign."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import DeferredToolRequests, Tool
from temporalio import activity

from benchmarks.faults.oracle import have_effect
from benchmarks.faults.script import DELEGATED, delegate_prefix, given, prompt, respond
from harness_temporal import HarnessDurability, StepPersistence, annotate_tool_effect, recovery_retryable
from harness_temporal.stores import StepStore
from harness_temporal.temporal import delegate as delegate_to_child
from harness_temporal.temporal.durability import DEFAULT_RETRY_POLICY

HEARTBEAT = timedelta(seconds=1)
LARGE = 150_000
"""Characters of a large result: a blob of its own, and more than a state that goes by value."""
REPORTING, CAUTIOUS, DELEGATE, COLLEAGUE = 'reporting', 'cautious', 'delegate', 'colleague'
UNDECLARED = frozenset({'pay', 'pay_in_thread', 'archive', 'ask', 'hand_over'})
"""Tools that must not run twice."""
EFFECTLESS = frozenset({'hand_over'})
"""Tools that have no effect but those of the run that they start."""


def durability() -> HarnessDurability[None]:
    """Return the durability of users, but for its times: a campaign cannot wait half a minute for each death."""
    policy = replace(DEFAULT_RETRY_POLICY, maximum_interval=timedelta(seconds=2))
    made = HarnessDurability[None](activity_config={'heartbeat_timeout': HEARTBEAT, 'retry_policy': policy})
    # Only its times are ours: who decides about a tool that raised stays as it is without a policy.
    made.has_retry_policy = False
    return made


def agents(store: StepStore, oracle: Path) -> list[Agent[None, Any]]:
    """Return the agents: one tells the model of an unknown outcome, the other suspends for a decision.

    Both hand work to a third, in a child workflow.
    """

    def act(ctx: RunContext[None]) -> str:
        assert ctx.tool_call_id is not None
        have_effect(oracle, activity.info().workflow_id, ctx.tool_call_id)
        return given(ctx.tool_call_id)

    async def pause() -> None:
        # So that there is a time before an effect, and one after it, for a worker to die in.
        await asyncio.sleep(random.uniform(0, 0.1))

    async def pay(ctx: RunContext[None]) -> str:
        await annotate_tool_effect(store, ctx, effect_summary='pay')
        await pause()
        paid = act(ctx)
        await pause()
        return paid

    delegate_agent = Agent(
        FunctionModel(respond),
        name=DELEGATE,
        tools=[pay],
        capabilities=[StepPersistence[None](store=store, agent_name=DELEGATE)],
    )

    @recovery_retryable
    async def look(ctx: RunContext[None]) -> str:
        await pause()
        return act(ctx)

    @recovery_retryable
    async def delegate(ctx: RunContext[None]) -> str:
        assert ctx.tool_call_id is not None
        result = await delegate_agent.run(prompt(DELEGATED, delegate_prefix(ctx.tool_call_id)))
        return f'{act(ctx)} {result.output}'

    async def hand_over(ctx: RunContext[None]) -> str:
        assert ctx.tool_call_id is not None
        steps = prompt(DELEGATED, delegate_prefix(ctx.tool_call_id))
        return f'{given(ctx.tool_call_id)} {(await delegate_to_child(ctx, agent=COLLEAGUE, prompt=steps)).output}'

    async def archive(ctx: RunContext[None]) -> str:
        await pause()
        return f'{act(ctx)} {"page " * (LARGE // 5)}'

    def pay_in_thread(ctx: RunContext[None]) -> str:
        time.sleep(random.uniform(0, 0.1))
        return act(ctx)

    async def ask(ctx: RunContext[None]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={'why': 'it costs'})
        await pause()
        return act(ctx)

    def agent(name: str, on_unknown: Any) -> Agent[None, Any]:
        return Agent(
            FunctionModel(respond),
            name=name,
            tools=[
                *(pay, look, delegate, archive, pay_in_thread, ask),
                Tool(hand_over, metadata={'temporal': False}),
            ],
            output_type=[str, DeferredToolRequests],
            capabilities=[
                StepPersistence[None](store=store, agent_name=name, on_unknown=on_unknown, capture_frontier=True),
                durability(),
            ],
        )

    return [agent(REPORTING, 'report'), agent(CAUTIOUS, 'suspend'), agent(COLLEAGUE, 'report')]
