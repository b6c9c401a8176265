"""An agent as users define one: at the level of a module, beside the workflow that runs it."""

from __future__ import annotations

from pydantic_ai import Agent
from temporalio import workflow

from harness_temporal import HarnessDurability, StepPersistence
from tests.runs.models import scripted

agent = Agent(scripted('done'), name='defined', capabilities=[StepPersistence(), HarnessDurability()])


@workflow.defn
class RunsAnAgent:
    @workflow.run
    async def run(self) -> str:
        return (await agent.run('go')).output
