"""The demo's workflow: one agent run."""

from __future__ import annotations

from temporalio import workflow

from harness_temporal.temporal import AgentRunInput, AgentRunOutput, run_agent


@workflow.defn(name='CodeLibrarian')
class CodeLibrarianWorkflow:
    """Runs the librarian once and shows its answer in the Temporal UI."""

    @workflow.run
    async def run(self, input: AgentRunInput) -> AgentRunOutput:
        """Run the agent."""
        workflow.set_current_details('The librarian is reading.')
        output = await run_agent(input)
        workflow.set_current_details(f'**Answer:** {output.output}')
        return output
