"""The workflow that runs any agent of its worker."""

from __future__ import annotations

from temporalio import workflow

from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, run_agent
from harness_temporal.temporal.client import AGENT_RUN_WORKFLOW


@workflow.defn(name=AGENT_RUN_WORKFLOW)
class AgentRunWorkflow:
    """Runs one of the worker's agents once and returns where to go on from."""

    @workflow.run
    async def run(self, input: AgentRunInput) -> AgentRunOutput:
        """Run the agent. See `AgentRunInput` and `AgentRunOutput`."""
        return await run_agent(input)
