"""Workflows have conversations named by an activity."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer, Worker

from harness_temporal import HarnessPlugin
from harness_temporal.conversations import ConversationSummary, SqliteConversationStore
from harness_temporal.step_persistence.naming import NamingResult, SessionName, SessionNamer
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.naming import NAME_CONVERSATION_ACTIVITY, NamingOutput
from harness_temporal.testing.samples import turns
from tests.temporal.naming_workflows import NamesASavedConversation, NamesItsOwnMessages
from tests.temporal.runs import scheduled_in

pytestmark = pytest.mark.temporal

WORKFLOWS = [NamesASavedConversation, NamesItsOwnMessages]
Generate = Callable[[str], Awaitable[NamingResult | None]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteConversationStore]:
    opened = SqliteConversationStore(tmp_path / 'conversations.db')
    yield opened
    await opened.aclose()


@pytest.fixture
async def saved(store: SqliteConversationStore) -> ConversationSummary:
    return await store.save(summary=ConversationSummary(), messages=turns(2))


@asynccontextmanager
async def working(server: DevServer, task_queue: str, naming: SessionNamer | None) -> AsyncIterator[Client]:
    client = await Client.connect(server.address, plugins=[HarnessPlugin(naming=naming)])
    async with Worker(client, task_queue=task_queue, workflows=WORKFLOWS, build_id='tests'):
        yield client


def named(title: str) -> tuple[Generate, list[str]]:
    prompts: list[str] = []

    async def generate(prompt: str) -> NamingResult:
        prompts.append(prompt)
        return NamingResult(name=SessionName(title=title, subtitle='S', tags=['t']), tokens=5)

    return generate, prompts


async def scheduled(handle: WorkflowHandle[Any, Any]) -> list[tuple[str, bytes]]:
    activities = scheduled_in(await handle.fetch_history())
    return [(activity.activity_type.name, activity.input.payloads[0].data) for activity in activities]


async def test_saved_conversation_is_named(
    temporal_server: DevServer, task_queue: str, store: SqliteConversationStore, saved: ConversationSummary
) -> None:
    generate, prompts = named('A name')
    async with working(temporal_server, task_queue, SessionNamer(store=store, generate=generate)) as client:
        start = client.start_workflow
        handle = await start(NamesASavedConversation.run, saved.id, id=f'n-{uuid.uuid4()}', task_queue=task_queue)
        assert await handle.result() == 'A name'
        # A name that is there is not paid for again.
        again = await start(NamesASavedConversation.run, saved.id, id=f'n-{uuid.uuid4()}', task_queue=task_queue)
        assert await again.result() is None
        history = await handle.fetch_history()
    assert len(prompts) == 1
    summary = (await store.get(conversation_id=saved.id)).summary
    assert (summary.title, summary.tags, summary.naming_tokens) == ('A name', ('t',), 5)
    [(name, data)] = await scheduled(handle)
    assert name == NAME_CONVERSATION_ACTIVITY
    [activity] = scheduled_in(history)
    assert activity.heartbeat_timeout.seconds == 30, 'a dead worker holds the workflow up no longer'
    assert len(data) < 200
    await Replayer(workflows=WORKFLOWS, plugins=[HarnessPlugin()]).replay_workflow(history)


async def test_messages_of_the_workflow_are_named_by_their_end(
    temporal_server: DevServer, task_queue: str, store: SqliteConversationStore
) -> None:
    generate, prompts = named('A name')
    async with working(temporal_server, task_queue, SessionNamer(store=store, generate=generate)) as client:
        handle = await client.start_workflow(
            NamesItsOwnMessages.run, 'the end', id=f'n-{uuid.uuid4()}', task_queue=task_queue
        )
        assert await handle.result() == NamingOutput(
            name=SessionName(title='A name', subtitle='S', tags=['t']), tokens=5
        )
    [prompt] = prompts
    assert 'Before' in prompt
    assert prompt.endswith('user: the end')
    assert 'output' not in prompt
    [(_, data)] = await scheduled(handle)
    assert len(data) < 2_600
    assert await store.listing() == []


async def test_failure_leaves_the_workflow_and_the_metadata(
    temporal_server: DevServer, task_queue: str, store: SqliteConversationStore, saved: ConversationSummary
) -> None:
    attempts: list[str] = []

    async def fail(prompt: str) -> None:
        attempts.append(prompt)
        raise RuntimeError('no model')

    async with working(temporal_server, task_queue, SessionNamer(store=store, generate=fail)) as client:
        for conversation_id in (saved.id, 'gone'):
            name = await client.execute_workflow(
                NamesASavedConversation.run, conversation_id, id=f'n-{uuid.uuid4()}', task_queue=task_queue
            )
            assert name is None
    assert len(attempts) == 2
    assert (await store.get(conversation_id=saved.id)).summary == saved


async def test_worker_without_a_namer_says_so(temporal_server: DevServer, task_queue: str) -> None:
    async with working(temporal_server, task_queue, None) as client:
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(
                NamesASavedConversation.run, 'any', id=f'n-{uuid.uuid4()}', task_queue=task_queue
            )
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == 'ConfigurationError'
    assert 'HarnessPlugin(naming=' in caught.value.cause.message


async def test_cancelled_workflow_does_not_take_it_for_a_failure(
    temporal_server: DevServer, task_queue: str, store: SqliteConversationStore, saved: ConversationSummary
) -> None:
    is_asked, is_over = asyncio.Event(), asyncio.Event()

    async def wait(prompt: str) -> None:
        is_asked.set()
        await is_over.wait()

    async with working(temporal_server, task_queue, SessionNamer(store=store, generate=wait)) as client:
        handle = await client.start_workflow(
            NamesASavedConversation.run, saved.id, id=f'n-{uuid.uuid4()}', task_queue=task_queue
        )
        await asyncio.wait_for(is_asked.wait(), 20)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        is_over.set()
    assert isinstance(caught.value.cause, CancelledError)
