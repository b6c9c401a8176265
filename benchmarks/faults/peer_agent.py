"""The agent and the workflow of the peer's campaign: its own step persistence, and Pydantic AI's durability.

The campaign names the store and the oracle in the environment, because a workflow sandbox imports this module again.
"""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

from benchmarks.faults.oracle import have_effect
from benchmarks.faults.script import given, respond

STORE, ORACLE = 'FAULTS_STORE', 'FAULTS_ORACLE'
_CONFIG = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=1),
    retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=2)),
)


async def pay(ctx: RunContext[None]) -> str:
    assert ctx.tool_call_id is not None
    await asyncio.sleep(random.uniform(0, 0.1))
    have_effect(Path(os.environ[ORACLE]), activity.info().workflow_id, ctx.tool_call_id)
    await asyncio.sleep(random.uniform(0, 0.1))
    return given(ctx.tool_call_id)


agent = Agent(
    FunctionModel(respond, model_name='scripted'),
    name='paying',
    tools=[pay],
    capabilities=[
        TemporalDurability(activity_config=_CONFIG),
        StepPersistence(store=SqliteStepStore(database=os.environ.get(STORE, ''))),
    ],
)


@workflow.defn(name='PeerRun')
class PeerRun:
    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self, prompt: str) -> str:
        return (await agent.run(prompt)).output
