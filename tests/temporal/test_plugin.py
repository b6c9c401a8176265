"""The mistakes a user makes with plugins and agents, and what is said to each."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
from pydantic_ai.exceptions import UserError
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from harness_temporal import AgentRunInput, HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.errors import ConfigurationError, PluginMissingError
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.plugin import STICKY_TIMEOUT
from tests.runs.models import scripted
from tests.temporal import defined_agent
from tests.temporal.processes import Workers
from workflows.agent_run import AgentRunWorkflow

pytestmark = pytest.mark.temporal


def an_agent(name: str, durability: Any = None) -> Agent[None, str]:
    return Agent(scripted('done'), name=name, capabilities=[StepPersistence(), durability or HarnessDurability()])


async def test_a_worker_without_the_plugin_fails_the_workflow_and_says_what_to_pass(
    temporal_server: DevServer, task_queue: str
) -> None:
    client = await Client.connect(temporal_server.address, plugins=[PydanticAIPlugin()])
    durability = HarnessDurability.from_agent(defined_agent.agent)
    assert durability is not None
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[defined_agent.RunsAnAgent],
        activities=durability.temporal_activities,
        build_id='tests',
    ):
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(
                defined_agent.RunsAnAgent.run, id=f'run-{uuid.uuid4()}', task_queue=task_queue
            )
    assert isinstance(caught.value.cause, ActivityError)
    error = caught.value.cause.cause
    assert isinstance(error, ApplicationError)
    assert error.type == 'PluginMissingError'
    assert 'plugins=[HarnessPlugin(agents=[...])]' in error.message


async def test_a_plugin_on_the_worker_alone_is_refused_when_the_worker_is_made(
    temporal_server: DevServer, task_queue: str
) -> None:
    client = await Client.connect(temporal_server.address)
    with pytest.raises(PluginMissingError, match=r'`Client\.connect`'):
        Worker(
            client, task_queue=task_queue, workflows=[AgentRunWorkflow], plugins=[HarnessPlugin(agents=[an_agent('a')])]
        )


async def test_a_client_without_the_plugin_can_start_a_run_and_read_its_result(
    temporal_server: DevServer, workers: Workers
) -> None:
    workers.start()
    client = await Client.connect(temporal_server.address)
    ended = await client.execute_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent='scripted', prompt='look'),
        id=f'run-{uuid.uuid4()}',
        task_queue=workers.task_queue,
    )
    assert ended.output == 'looked'


def test_an_agent_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match='unique `name`'):
        Agent(scripted('done'), capabilities=[HarnessDurability()])


@pytest.mark.parametrize('capabilities', [[], [TemporalDurability()]], ids=['none', 'of-pydantic-ai'])
async def test_an_agent_without_our_durability_is_refused(
    client: Client, temporal_server: DevServer, task_queue: str, capabilities: list[Any]
) -> None:
    agent = Agent(scripted('done'), name='bare', capabilities=capabilities)
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[agent])])
    with pytest.raises(ConfigurationError, match=r"'bare' .* has no `HarnessDurability`"):
        Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow])


async def test_two_agents_of_one_name_are_refused(temporal_server: DevServer, task_queue: str) -> None:
    plugin = HarnessPlugin(agents=[an_agent('same'), an_agent('same')])
    client = await Client.connect(temporal_server.address, plugins=[plugin])
    with pytest.raises(ConfigurationError, match="named 'same'"):
        Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow])


async def test_a_worker_gets_what_it_needs_and_keeps_what_it_was_given(
    temporal_server: DevServer, task_queue: str
) -> None:
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[defined_agent.agent])])
    worker = Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow], build_id='tests')
    config: Any = worker.config(active_config=True)
    passed = config['workflow_runner'].restrictions.passthrough_modules
    assert {'harness_temporal', 'pydantic_ai', 'tests.temporal.defined_agent'} <= passed
    assert config['sticky_queue_schedule_to_start_timeout'] == STICKY_TIMEOUT
    names = {item.__temporal_activity_definition.name for item in config['activities']}
    assert {'agent__defined__model_request', 'harness_temporal__load_snapshot'} <= names


def test_only_the_module_that_defines_an_agent_is_passed_through() -> None:
    """A module that only imports the agent keeps the sandbox's protection."""
    durability = HarnessDurability.from_agent(defined_agent.agent)
    assert durability is not None
    assert durability.defining_module == 'tests.temporal.defined_agent'
    module = SimpleNamespace(agent=defined_agent.agent)
    assert HarnessDurability.from_agent(module.agent) is durability
