"""What a worker keeps in memory of a thread, turn after turn."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from harness_temporal import HarnessDurability, HarnessPlugin, StepPersistence, history
from harness_temporal.known_histories import KnownHistories
from harness_temporal.temporal import received_requests
from harness_temporal.temporal.activity_names import MODEL_REQUESTS
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.threads import HarnessThread, HarnessThreads, resting
from harness_temporal.temporal.threads.workflow import ThreadWorkflow
from tests.temporal.threads import legs, new_id

pytestmark = pytest.mark.temporal

TURNS = 12


def count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(f'{len(messages)} messages')])


@pytest.fixture
def plugin() -> HarnessPlugin:
    capabilities = [StepPersistence[None](agent_name='counting'), HarnessDurability[None]()]
    return HarnessPlugin(agents=[Agent(FunctionModel(count), name='counting', capabilities=capabilities)])


@pytest.fixture
async def thread(temporal_server: DevServer, task_queue: str, plugin: HarnessPlugin) -> AsyncIterator[HarnessThread]:
    client = await Client.connect(temporal_server.address, plugins=[plugin])
    async with Worker(client, task_queue=task_queue, workflows=[ThreadWorkflow], build_id='tests'):
        thread = await HarnessThreads(client, agent='counting', task_queue=task_queue).open(new_id())
        yield thread
        await thread.close()
        await thread.result()


@pytest.fixture
def one_leg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the thread stay in one workflow run."""
    monkeypatch.setattr(resting, 'RESTING_BYTES', 2**30)


async def talk(thread: HarnessThread) -> None:
    for number in range(TURNS):
        assert (await thread.send('count')).output == f'{2 * number + 1} messages'


def requests_in_memory() -> int:
    gc.collect()
    # By the type: what stands in a workflow sandbox for a class refuses to be asked.
    return sum(type(item) is ModelRequest for item in gc.get_objects())


async def test_a_turn_adds_its_own_messages_and_no_copies_of_those_before(
    thread: HarnessThread, one_leg: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has a bound of its own, which these few messages do not reach.
    monkeypatch.setattr(history, '_known_histories', KnownHistories(0))
    before = requests_in_memory()
    await talk(thread)
    assert requests_in_memory() - before <= TURNS + 2


@pytest.mark.parametrize('remembers', [True, False], ids=['remembered', 'read back'])
async def test_a_turn_sends_its_own_messages_and_not_those_before(
    client: Client, thread: HarnessThread, one_leg: None, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    if not remembers:
        monkeypatch.setattr(received_requests, '_REMEMBERED', 0)
    await talk(thread)
    counts: list[int] = []
    async for event in thread.handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name.endswith(MODEL_REQUESTS):
            [params, *_] = await client.data_converter.decode(scheduled.input.payloads)
            counts.append(len(params['messages']))
    assert counts == [1] + [2] * (TURNS - 1)


async def test_a_turn_saves_its_own_messages_and_not_those_before(
    client: Client, thread: HarnessThread, one_leg: None
) -> None:
    """A long history goes by reference, so the store has it."""
    for text in ('x' * 70_000, *['count'] * TURNS):
        await thread.send(text)
    saved: list[int] = []
    async for event in thread.handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name.endswith('__end_run'):
            [operation, *_] = await client.data_converter.decode(scheduled.input.payloads)
            saved.append(len(operation['arguments']['payload']['last']['bodies']))
    assert saved == [2] * (TURNS + 1)


async def test_a_thread_that_waits_has_a_short_history(
    client: Client, thread: HarnessThread, plugin: HarnessPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, 'RESTING_BYTES', 1)
    await talk(thread)
    histories = await legs(client, thread.handle)
    assert len(histories) > 2
    for leg in histories[:-1]:
        kinds = [event.event_type for event in leg.events]
        assert kinds.count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED) > 3, 'it is worth going on'
        assert kinds.count(EventType.EVENT_TYPE_MARKER_RECORDED) == 1
    await replay(histories, plugin)


async def test_a_long_history_from_before_there_was_this_rule_replays(
    client: Client, thread: HarnessThread, plugin: HarnessPlugin, one_leg: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(thread)
    histories = await legs(client, thread.handle)
    assert len(histories) == 1
    monkeypatch.setattr(resting, 'RESTING_BYTES', 1)
    await replay(histories, plugin)


async def replay(histories: list[WorkflowHistory], plugin: HarnessPlugin) -> None:
    replayer = Replayer(workflows=[ThreadWorkflow], plugins=[plugin], build_id='tests')
    for leg in histories:
        await replayer.replay_workflow(leg)
