"""One agent run per workflow."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from harness_temporal.temporal import AgentRunInput, AgentRunOutput, run_agent


@workflow.defn(name='AgentRun')
class AgentRunWorkflow:
    """Runs one of the worker's agents once and returns where to go on from."""

    @workflow.run
    async def run(self, input: AgentRunInput) -> AgentRunOutput:
        """Run the agent. See `AgentRunInput` and `AgentRunOutput`."""
        return await run_agent(input)
