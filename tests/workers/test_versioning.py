"""Two builds of one deployment on the dev server: which one a workflow goes on with."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import pytest
from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from harness_temporal import AgentRunInput, AgentRunOutput
from harness_temporal.hosting.settings import WorkerSettings
from harness_temporal.hosting.worker import build_worker
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer
from tests.temporal import scenarios
from tests.temporal.effects import noted
from tests.temporal.runs import until
from workflows.agent_run import AgentRunWorkflow

Behavior = Literal['pinned', 'auto-upgrade']


class Deployment:
    """Workers of this process; the builds share a store."""

    def __init__(self, stack: AsyncExitStack, address: str, task_queue: str, folder: Path) -> None:
        self.name = f'deployment-{uuid.uuid4()}'
        self._stack, self._address, self.task_queue, self._folder = stack, address, task_queue, folder
        self._store = InMemoryStepStore()

    async def start(self, build_id: str, versioning: Behavior) -> Client:
        """Start a worker, and have new workflows go to it."""
        agents = scenarios.agents(self._store, self._folder)
        client = await Client.connect(self._address, plugins=[HarnessPlugin(agents=agents)])
        settings = WorkerSettings(
            agents=('not:used',),
            task_queue=self.task_queue,
            deployment_name=self.name,
            build_id=build_id,
            versioning=versioning,
            graceful_shutdown_seconds=1,
        )
        await self._stack.enter_async_context(build_worker(client, settings, workflows=[AgentRunWorkflow]))
        await until(lambda: self._becomes_current(client, build_id))
        await until(lambda: self._is_routed_to(client, build_id))
        return client

    async def _becomes_current(self, client: Client, build_id: str) -> bool:
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace, deployment_name=self.name, build_id=build_id, identity='test'
        )
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            # The server hears of a build when its worker asks for work.
            return False
        return True

    async def _is_routed_to(self, client: Client, build_id: str) -> bool:
        """Whether the task queues have heard of it: they are told one after another."""
        request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=self.name)
        info = (await client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
        routed = info.routing_config_update_state == RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED
        return routed and info.routing_config.current_deployment_version.build_id == build_id


@pytest.fixture
async def deployment(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        yield Deployment(stack, temporal_server.address, task_queue, tmp_path)


async def build_of(handle: WorkflowHandle[AgentRunWorkflow, AgentRunOutput]) -> str:
    described = await handle.describe()
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id


async def start(client: Client, task_queue: str, prompt: str) -> WorkflowHandle[AgentRunWorkflow, AgentRunOutput]:
    return await client.start_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent='scripted', prompt=prompt),
        id=f'run-{uuid.uuid4()}',
        task_queue=task_queue,
    )


@pytest.mark.parametrize(('versioning', 'build_at_the_end'), [('pinned', '1'), ('auto-upgrade', '2')])
async def test_a_run_that_is_under_way_when_a_build_becomes_current(
    deployment: Deployment, tmp_path: Path, versioning: Behavior, build_at_the_end: str
) -> None:
    client = await deployment.start('1', versioning)
    earlier = await start(client, deployment.task_queue, 'pay_when_told')
    await until(lambda: bool(noted(tmp_path, 'paid')))
    assert await build_of(earlier) == '1'
    await deployment.start('2', versioning)
    later = await start(client, deployment.task_queue, 'look')
    await later.result()
    assert await build_of(later) == '2'
    (tmp_path / 'told').touch()
    assert (await earlier.result()).output == 'paid'
    assert await build_of(earlier) == build_at_the_end
