"""The workflow that is measured. It imports its agent as a user's module does: not passed through by hand."""

from __future__ import annotations

from pydantic_ai.usage import UsageLimits
from temporalio import workflow

from benchmarks.agents import agent


@workflow.defn(name='BenchmarkRun')
class BenchmarkRun:
    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self, prompt: str) -> str:
        return (await agent.run(prompt, usage_limits=UsageLimits(request_limit=None))).output
