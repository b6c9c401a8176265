"""The state that a run's workflow ended with."""

from __future__ import annotations

from harness_temporal.cli.connecting import Place, connected
from harness_temporal.errors import ConfigurationError
from harness_temporal.records import RunRecord
from harness_temporal.state.envelope import HarnessState
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal import AgentRunOutput
from harness_temporal.temporal.durability import WORKFLOW_ID_METADATA_KEY


async def state_of_result(place: Place, run: RunRecord, store: StepStore) -> HarnessState:
    """Return the state, waiting for the workflow's end.

    Raises:
        ConfigurationError: The run ran in no workflow, or in one that ended with another run.
    """
    workflow_id = run.metadata.get(WORKFLOW_ID_METADATA_KEY)
    if workflow_id is None:
        raise ConfigurationError(f'Run {run.run_id!r} ran in no workflow: leave out `--from-workflow`.')
    client = (await connected(place)).client
    handle = client.get_workflow_handle(workflow_id, result_type=AgentRunOutput)
    output: AgentRunOutput = await handle.result()
    if output.run_id != run.run_id or output.state is None:
        raise ConfigurationError(
            f'The workflow {workflow_id!r} did not end with run {run.run_id!r}: leave out `--from-workflow`.'
        )
    return await output.state.load(store)
