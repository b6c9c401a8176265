"""A workflow that calls the synchronous method of an agent, which it must not."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio import workflow

from harness_temporal import HarnessDurability, StepPersistence
from harness_temporal.step_persistence import InMemoryStepStore

agent = Agent(
    TestModel(),
    name='synchronous',
    capabilities=[
        StepPersistence[None](store=InMemoryStepStore(), agent_name='synchronous'),
        HarnessDurability[None](),
    ],
)


@workflow.defn
class CallsRunSync:
    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self) -> str:
        return agent.run_sync('go').output
