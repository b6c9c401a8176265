"""The parent run is known wherever a tool starts another run, without anybody threading it through."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from tests.temporal.processes import Workers, replay
from tests.temporal.runs import start

pytestmark = pytest.mark.temporal


@pytest.mark.parametrize(
    ('tool', 'agent'),
    [
        pytest.param('delegate_it', 'delegate', id='in-the-tools-activity'),
        pytest.param('delegate_to_child_workflow', 'forgetful', id='in-a-child-workflow'),
        pytest.param('delegate_to_activity', 'plain', id='in-an-activity-of-the-users'),
        pytest.param('delegate_through_client', 'forgetful', id='in-a-workflow-started-by-a-client'),
    ],
)
async def test_a_run_started_by_a_tool_has_the_tools_run_as_its_parent(
    client: Client, workers: Workers, tool: str, agent: str
) -> None:
    workers.start()
    run = await start(client, workers, tool)
    await run.result()

    [delegated] = await run.store.list_runs(parent_run_id=run.run_id)
    assert delegated.agent_name == agent
    record = await run.store.get_run(run_id=run.run_id)
    assert record is not None
    assert record.parent_run_id is None
    await replay(await run.history(), workers.config)


async def test_a_given_parent_run_is_kept(client: Client, workers: Workers) -> None:
    workers.start()
    run = await start(client, workers, 'look', parent_run_id='orchestrator-1')
    await run.result()
    [record] = await run.store.list_runs(parent_run_id='orchestrator-1')
    assert record.run_id == run.run_id
