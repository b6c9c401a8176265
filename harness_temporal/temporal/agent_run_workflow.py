"""The workflow that runs any agent of its worker."""

from __future__ import annotations

from temporalio import workflow

from harness_temporal.state.running import Run
from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, run_agent
from harness_temporal.temporal.client import AGENT_RUN_WORKFLOW
from harness_temporal.temporal.visibility import run_details
from harness_temporal.temporal.visibility.steps import step_table


@workflow.defn(name=AGENT_RUN_WORKFLOW)
class AgentRunWorkflow:
    """Runs one of the worker's agents once and returns where to go on from."""

    @workflow.run
    async def run(self, input: AgentRunInput) -> AgentRunOutput:
        """Run the agent. See `AgentRunInput` and `AgentRunOutput`."""
        run_id: str | None = None

        def begin(begun: str, _: Run) -> None:
            nonlocal run_id
            run_id = begun
            _say(run_details.running(begun))

        try:
            output = await run_agent(input, on_begin=begin)
        except Exception:
            _say(run_details.failed(run_id))
            raise
        deferred = output.output if output.status == 'suspended' else None
        _say(run_details.ended(output.run_id, output.status, deferred))
        return output


def _say(heading: str) -> None:
    table = step_table.get()
    if table is not None:
        table.head(heading)
