"""A model request crosses with what is new since an earlier one, and the model gets all of it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionDef, FunctionModel
from temporalio import workflow
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseResponse
from temporalio.client import Client, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from harness_temporal import HarnessDurability, HarnessPlugin, StepPersistence, history
from harness_temporal.errors import PluginMissingError
from harness_temporal.known_histories import KnownHistories
from harness_temporal.temporal import received_requests
from harness_temporal.temporal.activity_names import MODEL_REQUESTS
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.payloads.errors import RequestIncompleteError
from harness_temporal.temporal.received_requests import ReceivedRequests
from harness_temporal.temporal.run_context import HarnessRunContext
from harness_temporal.temporal.sent_requests import REQUEST_KEY, SentRequests

# --- what is sent ---


@dataclass
class Params:
    messages: list[ModelMessage]
    serialized_run_context: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Input:
    args: list[Any]


class Sent:
    """Sends requests, and answers them unless it is told otherwise."""

    def __init__(self) -> None:
        self._requests = SentRequests()
        self.pending: asyncio.Future[None] = asyncio.Future()

    async def send(self, messages: list[ModelMessage], *, answer: bool = True) -> tuple[int | None, int, int]:
        """Return the request's base, how many messages are kept of it, and how many crossed."""
        started: list[Params] = []

        def start(input: Any) -> Any:
            started.append(input.args[0])
            self.pending = asyncio.Future()
            return self.pending

        self._requests.send(Input([Params(messages), None]), start)  # pyright: ignore[reportArgumentType]
        if answer:
            self.pending.set_result(None)
            await asyncio.sleep(0)
        crossing = started[0].serialized_run_context[REQUEST_KEY]
        return crossing['base'], crossing['kept'], len(started[0].messages)

    def one_run(self) -> AbstractContextManager[None]:
        return self._requests.of_one_run()


def asks(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def returns(content: Any) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart('page', content, tool_call_id='1')])


async def test_what_an_answered_request_had_is_not_sent_again() -> None:
    sent = Sent()
    messages: list[ModelMessage] = [asks('a')]
    assert await sent.send(messages) == (None, 0, 1)
    messages += [says('b'), asks('c')]
    assert await sent.send(messages) == (1, 1, 2)
    assert await sent.send(messages) == (2, 3, 0)
    assert await sent.send([*messages[:2], asks('d')]) == (3, 2, 1)
    assert await sent.send([says('new'), *messages]) == (None, 0, 4)


@pytest.mark.parametrize('end', ['cancelled', 'failed', 'still running'])
async def test_what_was_not_answered_is_sent_again(end: str) -> None:
    sent = Sent()
    messages: list[ModelMessage] = [asks('a')]
    await sent.send(messages)
    messages += [says('b'), asks('c')]
    await sent.send(messages, answer=False)
    if end == 'cancelled':
        sent.pending.cancel()
    if end == 'failed':
        sent.pending.set_exception(RuntimeError())
    await asyncio.sleep(0)
    assert await sent.send(messages) == (1, 1, 2)


async def test_a_message_that_was_changed_in_place_is_sent_again() -> None:
    sent = Sent()
    content = {'pages': [1, 2]}
    messages: list[ModelMessage] = [asks('a'), says('b'), returns(content), says('c'), asks('d')]
    await sent.send(messages)
    content['pages'].append(3)
    assert await sent.send(messages) == (1, 2, 3)


async def test_a_message_whose_changes_cannot_be_seen_is_always_sent() -> None:
    sent = Sent()
    messages: list[ModelMessage] = [asks('a'), returns({'a', 'b'}), says('b')]
    await sent.send(messages)
    assert await sent.send(messages) == (1, 1, 2)


async def test_runs_that_take_turns_each_extend_their_own() -> None:
    sent = Sent()
    one: list[ModelMessage] = [asks('a'), says('b')]
    other: list[ModelMessage] = [asks('a'), says('x'), asks('y')]
    await sent.send(one)
    await sent.send(other)
    assert await sent.send([*one, asks('c')]) == (1, 2, 1)
    assert await sent.send([*other, says('z')]) == (2, 3, 1)


async def test_a_run_that_begins_like_another_does_not_cost_it_its_base() -> None:
    sent = Sent()
    first = asks('a')
    long: list[ModelMessage] = [first, says('b'), asks('c'), says('d')]
    short: list[ModelMessage] = [first, says('x')]
    await sent.send(long)
    assert await sent.send(short) == (1, 1, 1)
    assert await sent.send([*short, asks('y')]) == (2, 2, 1)
    assert await sent.send([*long, asks('e')]) == (1, 4, 1)


async def test_of_two_requests_on_one_base_the_later_is_the_next_base() -> None:
    sent = Sent()
    messages: list[ModelMessage] = [asks('a')]
    await sent.send(messages)
    left, right = [*messages, says('l')], [*messages, says('r')]
    await sent.send(left, answer=False)
    earlier = sent.pending
    assert await sent.send(right) == (1, 1, 1)
    earlier.set_result(None)
    await asyncio.sleep(0)
    assert await sent.send([*right, asks('c')]) == (3, 2, 1)
    assert await sent.send([*left, asks('d')]) == (4, 1, 2)


async def test_a_workflow_with_many_runs_remembers_some_of_them() -> None:
    sent = Sent()
    runs: list[list[ModelMessage]] = [[asks(str(number))] for number in range(9)]
    for run in runs:
        await sent.send(run)
    assert await sent.send(runs[1]) == (2, 1, 0)
    assert await sent.send(runs[0]) == (None, 0, 1)


def read_back(messages: list[ModelMessage]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


async def test_what_the_run_before_has_sent_is_known_when_it_comes_back_as_json() -> None:
    sent = Sent()
    messages: list[ModelMessage] = [asks('a')]
    with sent.one_run():
        await sent.send(messages)
        messages += [says('b'), asks('c')]
        await sent.send(messages)
    messages = [*read_back(messages), says('d'), asks('e')]
    with sent.one_run():
        assert await sent.send(messages) == (2, 3, 2)
        messages += [says('f'), asks('g')]
        assert await sent.send(messages) == (3, 5, 2)
    messages = read_back(messages)
    messages[3] = says('another')
    assert await sent.send(messages) == (4, 3, 4)


@pytest.mark.parametrize('end', ['changed', 'not answered'])
async def test_what_the_run_before_has_sent_and_is_not_known_is_sent_again(end: str) -> None:
    sent = Sent()
    content = {'pages': [1, 2]}
    messages: list[ModelMessage] = [asks('a'), says('b'), returns(content)]
    with sent.one_run():
        await sent.send(messages[:1])
        await sent.send(messages, answer=end == 'changed')
        content['pages'].append(3)
    expected = (2, 2, 1) if end == 'changed' else (1, 1, 2)
    assert await sent.send(read_back(messages)) == expected


async def test_messages_of_an_ended_run_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # It keeps messages that it takes for known ones, up to a bound of its own.
    monkeypatch.setattr(history, '_known_histories', KnownHistories(0))
    sent = Sent()
    messages: list[ModelMessage] = [asks('a'), says('b'), asks('kept by nobody')]
    with sent.one_run():
        await sent.send(messages)
    kept = weakref.ref(messages.pop())
    sent.pending = asyncio.Future()
    assert kept() is None


def test_a_worker_without_the_plugin_does_not_send_half_a_request() -> None:
    with pytest.raises(PluginMissingError, match='newest messages only'):
        HarnessRunContext.deserialize_run_context({'run_id': 'x', REQUEST_KEY: {}}, None)


# --- what is put together ---


class Server:
    """Stands for a client whose server has no history of the workflow, or cannot read it backwards."""

    namespace = 'default'
    data_converter = DataConverter.default

    def __init__(self, error: RPCError | None = None) -> None:
        self.workflow_service = self
        self._error = error

    async def get_workflow_execution_history_reverse(
        self, asked: object, *, retry: bool
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        if self._error is not None:
            raise self._error
        return GetWorkflowExecutionHistoryReverseResponse()


UNIMPLEMENTED = RPCError('no such method', RPCStatusCode.UNIMPLEMENTED, b'')
AWAY = RPCError('away', RPCStatusCode.UNAVAILABLE, b'')


@pytest.mark.parametrize(
    ('error', 'message'),
    [(None, 'request 1 is not in its history'), (UNIMPLEMENTED, 'cannot read a history backwards')],
    ids=['not there', 'no such method'],
)
async def test_a_request_that_never_can_be_whole_ends_the_call(error: RPCError | None, message: str) -> None:
    crossing = {'number': 2, 'base': 1, 'kept': 1}
    params = Params([says('b')], {REQUEST_KEY: crossing})
    environment = ActivityEnvironment(client=cast(Any, Server(error)))
    with pytest.raises(RequestIncompleteError, match=message) as failed:
        await environment.run(ReceivedRequests().restore, [params])
    assert failed.value.non_retryable


async def test_a_server_that_is_away_is_worth_another_attempt() -> None:
    params = Params([says('b')], {REQUEST_KEY: {'number': 2, 'base': 1, 'kept': 1}})
    environment = ActivityEnvironment(client=cast(Any, Server(AWAY)))
    with pytest.raises(RPCError, match='away'):
        await environment.run(ReceivedRequests().restore, [params])


async def test_small_messages_are_remembered_for_what_they_take_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_requests, '_REMEMBERED', 20_000)
    environment = ActivityEnvironment(client=cast(Any, Server()))

    async def restore(received: ReceivedRequests, first: int) -> None:
        whole = Params([asks('a')] * first, {REQUEST_KEY: {'number': 1, 'base': None, 'kept': 0}})
        await environment.run(received.restore, [whole])
        new = Params([asks('b')], {REQUEST_KEY: {'number': 2, 'base': 1, 'kept': first}})
        await environment.run(received.restore, [new])
        assert len(new.messages) == first + 1

    await restore(ReceivedRequests(), 4)
    with pytest.raises(RequestIncompleteError):
        await restore(ReceivedRequests(), 20)


# --- what the model gets ---

STEPS = 6
seen: list[list[str]] = []
"""The texts of each request, as the model got them."""


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content) if isinstance(part, (UserPromptPart, ToolReturnPart, TextPart)) else f'{part.part_kind}'
        for message in messages
        for part in message.parts
    ]


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    seen.append(texts(messages))
    step = len(seen)
    if step > STEPS:
        return ModelResponse(parts=[TextPart('done')])
    return ModelResponse(parts=[ToolCallPart('page', {'number': step}, tool_call_id=f'call-{step}')])


def meddle(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    response = respond(messages, info)
    messages[0].parts[0] = UserPromptPart('changed by the model')  # pyright: ignore[reportIndexIssue, reportArgumentType]
    return response


async def page(number: int) -> str:
    return f'page {number}'


def keep_all(messages: list[ModelMessage]) -> list[ModelMessage]:
    return messages


def keep_four(messages: list[ModelMessage]) -> list[ModelMessage]:
    return messages if len(messages) < 5 else [messages[0], *messages[-3:]]


def shorten_in_place(messages: list[ModelMessage]) -> list[ModelMessage]:
    for message in messages[:-2]:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                part.content = '(old)'
    return messages


PROCESSORS = {'all': keep_all, 'window': keep_four, 'in place': shorten_in_place}


def agent_with(processor: str, *, persisted: bool, model: FunctionDef = respond) -> Agent[None, str]:
    return Agent(
        FunctionModel(model),
        name=f'crossing-{processor}',
        tools=[page],
        capabilities=[
            ProcessHistory(PROCESSORS[processor]),
            *([StepPersistence(agent_name='crossing')] if persisted else []),
            HarnessDurability(),
        ],
    )


AGENTS = {
    **{processor: agent_with(processor, persisted=True) for processor in PROCESSORS},
    'alone': agent_with('all', persisted=False),
    'meddling': agent_with('all', persisted=True, model=meddle),
}


@workflow.defn(name='Crossing', sandboxed=False)
class Crossing:
    @workflow.run
    async def run(self, name: str) -> str:
        return (await AGENTS[name].run('go')).output


async def crossed(client: Client, handle: WorkflowHandle[Any, str]) -> list[int]:
    """Return how many messages each model request was scheduled with."""
    counts: list[int] = []
    async for event in handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name.endswith(MODEL_REQUESTS):
            [params, *_] = await client.data_converter.decode(scheduled.input.payloads)
            counts.append(len(params['messages']))
    return counts


@pytest.mark.temporal
@pytest.mark.parametrize('remembers', [True, False], ids=['remembered', 'read back'])
@pytest.mark.parametrize('name', ['all', 'window', 'in place', 'alone'])
async def test_the_model_gets_the_whole_request(
    temporal_server: DevServer,
    task_queue: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    remembers: bool,
) -> None:
    if not remembers:
        monkeypatch.setattr(received_requests, '_REMEMBERED', 0)
    seen.clear()
    await AGENTS[name].run('go')
    expected = [*seen]
    seen.clear()
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[AGENTS[name]])])
    async with Worker(client, task_queue=task_queue, workflows=[Crossing], build_id='tests'):
        handle = await client.start_workflow(Crossing.run, name, id=f'crossing-{task_queue}', task_queue=task_queue)
        assert await handle.result() == 'done'
    assert seen == expected
    counts = await crossed(client, handle)
    if name in ('all', 'alone'):
        assert counts == [1] + [2] * STEPS
    assert max(counts) <= 4


@pytest.mark.temporal
async def test_what_a_model_does_to_its_messages_is_not_in_the_next_request(
    temporal_server: DevServer, task_queue: str
) -> None:
    seen.clear()
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[AGENTS['meddling']])])
    async with Worker(client, task_queue=task_queue, workflows=[Crossing], build_id='tests'):
        await client.execute_workflow(Crossing.run, 'meddling', id=f'crossing-{task_queue}', task_queue=task_queue)
    assert [texts[0] for texts in seen] == ['go'] * (STEPS + 1)
