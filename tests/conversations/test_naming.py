"""Naming in the background (step-persistence seed, "Conversation heads and background names")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai import Agent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from harness_temporal.conversations import ConversationSummary, SqliteConversationStore
from harness_temporal.errors import ConfigurationError, ConversationNotFoundError
from harness_temporal.step_persistence import naming
from harness_temporal.step_persistence.naming import (
    NamingResult,
    SessionName,
    SessionNamer,
    generate_name,
    naming_prompt,
)
from harness_temporal.testing.samples import asks, calls, returns, says, turns

LOGGER = 'harness_temporal.step_persistence.naming'


class Names:
    """Gives names, and remembers what it was asked with."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.gate: asyncio.Event | None = None
        self.under_way = 0
        self.errors: list[Exception | None] = []

    async def __call__(self, prompt: str) -> NamingResult | None:
        assert self.under_way == 0, 'two at a time'
        self.under_way += 1
        try:
            self.prompts.append(prompt)
            if self.gate is not None:
                await self.gate.wait()
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error
            return NamingResult(name=SessionName(title=f'Name {len(self.prompts)}', tags=['t']), tokens=7)
        finally:
            self.under_way -= 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteConversationStore]:
    opened = SqliteConversationStore(tmp_path / 'conversations.db')
    yield opened
    await opened.aclose()


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def namer(store: SqliteConversationStore, names: Names) -> SessionNamer:
    return SessionNamer(store=store, generate=names)


@pytest.fixture
async def worker(namer: SessionNamer) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(namer.run())
    yield task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)


async def save(
    store: SqliteConversationStore, name: str, messages: list[ModelMessage] | None = None
) -> ConversationSummary:
    return await store.save(summary=ConversationSummary(id=name), messages=messages or turns(2, topic=name))


async def titles(store: SqliteConversationStore) -> dict[str, str]:
    return {summary.id: summary.title for summary in await store.listing()}


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.005)


# --- the worker ---


async def test_submitted_conversations_are_named_one_at_a_time(
    store: SqliteConversationStore, namer: SessionNamer, worker: asyncio.Task[None]
) -> None:
    for name in 'abc':
        await save(store, name)
        assert namer.submit(name)

    async def are_named() -> bool:
        return await titles(store) == {'a': 'Name 1', 'b': 'Name 2', 'c': 'Name 3'}

    await until(are_named)
    # The worker waits for more.
    await save(store, 'd')
    namer.submit('d')

    async def is_named() -> bool:
        return (await titles(store))['d'] == 'Name 4'

    await until(is_named)


def test_work_is_merged_in_a_queue_of_ten(namer: SessionNamer) -> None:
    assert [namer.submit('0'), namer.submit('0')] == [True, False]
    assert [namer.submit(f'{number}') for number in range(1, 12)] == [True] * 9 + [False] * 2
    assert not namer.submit('0')


async def test_conversation_that_is_being_named_can_be_submitted_again(
    store: SqliteConversationStore, namer: SessionNamer, names: Names, worker: asyncio.Task[None]
) -> None:
    names.gate = asyncio.Event()
    saved = await save(store, 'a')
    namer.submit('a')

    async def is_asked() -> bool:
        return len(names.prompts) == 1

    await until(is_asked)
    await store.save(summary=saved, messages=turns(4))
    assert namer.submit('a')
    names.gate.set()

    async def is_named() -> bool:
        return (await titles(store))['a'] == 'Name 2'

    # The first name came too late for what was said meanwhile. What it used counts.
    await until(is_named)
    assert (await store.get(conversation_id='a')).summary.naming_tokens == 14


async def test_backfill_considers_the_newest_ten(
    store: SqliteConversationStore, namer: SessionNamer, names: Names
) -> None:
    entries = [ConversationSummary(id=f'{number}') for number in range(12)]
    entries[3] = ConversationSummary(id='3', title_source='user')
    namer.backfill(entries)
    assert [namer.submit(f'{number}') for number in range(12)] == [number == 3 for number in range(12)]


async def test_failure_is_logged_for_debugging_and_leaves_the_metadata(
    store: SqliteConversationStore,
    namer: SessionNamer,
    names: Names,
    worker: asyncio.Task[None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    names.errors = [RuntimeError('no model'), None]
    failed = await save(store, 'failed')
    await save(store, 'fine')
    for name in ('gone', 'failed', 'fine'):
        namer.submit(name)

    async def is_named() -> bool:
        return (await titles(store))['fine'] == 'Name 2'

    await until(is_named)
    assert (await store.get(conversation_id='failed')).summary == failed
    records = [record for record in caplog.records if record.name == LOGGER]
    assert [record.levelno for record in records] == [logging.DEBUG] * 2
    assert [type(record.exc_info[1]) for record in records if record.exc_info] == [
        ConversationNotFoundError,
        RuntimeError,
    ]


async def test_model_that_takes_too_long_is_given_up(store: SqliteConversationStore, names: Names) -> None:
    names.gate = asyncio.Event()
    asyncio.get_running_loop().call_later(10, names.gate.set)
    saved = await save(store, 'a')
    with pytest.raises(TimeoutError):
        await SessionNamer(store=store, generate=names, timeout=0.05).name(conversation_id='a')
    assert (await store.get(conversation_id='a')).summary == saved
    assert names.under_way == 0


def test_limits_are_those_of_the_seed(namer: SessionNamer, store: SqliteConversationStore, names: Names) -> None:
    assert (namer.timeout, naming.QUEUED, naming.RENAMED_AFTER, naming.TAIL) == (60, 10, 16, 2_400)
    with pytest.raises(ConfigurationError, match='timeout'):
        SessionNamer(store=store, generate=names, timeout=0)


async def test_cancellation_ends_the_worker_and_what_it_waits_for(
    store: SqliteConversationStore, namer: SessionNamer, names: Names
) -> None:
    names.gate = asyncio.Event()
    await save(store, 'a')
    namer.submit('a')
    worker = asyncio.create_task(namer.run())

    async def is_asked() -> bool:
        return names.under_way == 1

    await until(is_asked)
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(worker, 10)
    assert names.under_way == 0


# --- what is named, and from what ---


async def test_prompt_has_the_last_name_and_the_end_of_what_was_said(
    store: SqliteConversationStore, namer: SessionNamer, names: Names
) -> None:
    messages: list[ModelMessage] = [
        asks('first ' * 1000),
        calls({}),
        returns('secret output'),
        says('y' * 2300),
        asks('last'),
    ]
    saved = await save(store, 'a', messages)
    await store.name(source=saved, title='Before', subtitle='and more')
    for _ in range(16):
        saved = await store.save(summary=saved, messages=messages)
    name = await namer.name(conversation_id='a')
    assert name is not None
    [prompt] = names.prompts
    assert 'Before' in prompt
    assert 'and more' in prompt
    tail = prompt.partition('ends with:\n')[2]
    assert len(tail) == 2_400
    assert tail.endswith(f'first \nassistant: {"y" * 2300}\nuser: last')
    assert 'secret' not in tail


async def test_generated_name_is_made_anew_after_sixteen_revisions(
    store: SqliteConversationStore, namer: SessionNamer
) -> None:
    saved = await save(store, 'a')
    assert await namer.name(conversation_id='a') is not None
    named: list[int] = []
    for _ in range(33):
        saved = await store.save(summary=saved, messages=turns(2))
        if await namer.name(conversation_id='a') is not None:
            named.append(saved.revision)
    assert named == [17, 33]


async def test_name_of_a_person_is_never_made_anew(
    store: SqliteConversationStore, namer: SessionNamer, names: Names
) -> None:
    saved = await save(store, 'a')
    await store.name(source=saved, title='Mine', manual=True)
    for _ in range(20):
        saved = await store.save(summary=saved, messages=turns(2))
    assert await namer.name(conversation_id='a') is None
    assert names.prompts == []


async def test_person_who_names_meanwhile_wins(store: SqliteConversationStore) -> None:
    saved = await save(store, 'a')

    async def generate(prompt: str) -> NamingResult:
        assert await store.name(source=saved, title='Mine', manual=True)
        return NamingResult(name=SessionName(title='Generated'), tokens=3)

    assert await SessionNamer(store=store, generate=generate).name(conversation_id='a') is None
    summary = (await store.get(conversation_id='a')).summary
    assert (summary.title, summary.naming_tokens) == ('Mine', 3)


@pytest.mark.parametrize('messages', [[returns('output')], [asks(' \n')]], ids=['no text', 'blank'])
async def test_conversation_without_text_is_not_named(
    store: SqliteConversationStore, namer: SessionNamer, names: Names, messages: list[ModelMessage]
) -> None:
    await save(store, 'a', messages)
    assert await namer.name(conversation_id='a') is None
    assert names.prompts == []


async def test_generator_may_decline(store: SqliteConversationStore) -> None:
    async def decline(prompt: str) -> None: ...

    saved = await save(store, 'a')
    assert await SessionNamer(store=store, generate=decline).name(conversation_id='a') is None
    assert (await store.get(conversation_id='a')).summary == saved


def test_name_is_short_and_plain() -> None:
    name = SessionName(
        title='one two\n\x1b[31mthree four five six seven eight nine',
        subtitle=' '.join(map(str, range(20))),
        tags=['Red!', 'red', '---', 'x' * 40],
    )
    assert name.title == 'one two [31mthree four five six seven eight'
    assert name.subtitle == '0 1 2 3 4 5 6 7 8 9 10 11'
    assert name.tags == ['red', 'x' * 24]
    for wrong in ({'title': '\x00 \n'}, {'title': ''}, {'title': 'T', 'tags': ['a', 'b', 'c', 'd', 'e']}):
        with pytest.raises(ValidationError):
            SessionName(**wrong)  # pyright: ignore[reportArgumentType]


def test_prompt_takes_any_text() -> None:
    assert '\\ud800' in naming_prompt(title='T', subtitle='', tail='\ud800')


# --- the agent ---


def answers(*arguments: dict[str, Any]) -> tuple[FunctionModel, list[tuple[list[ModelMessage], AgentInfo]]]:
    asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append((messages, info))
        [tool] = info.output_tools
        return ModelResponse(parts=[ToolCallPart(tool.name, arguments[min(len(asked), len(arguments)) - 1])])

    return FunctionModel(answer), asked


async def test_model_is_asked_without_tools_and_with_a_limit_of_tokens() -> None:
    model, asked = answers({'title': 'A name', 'tags': ['one']})
    result = await generate_name(model=model, prompt='the conversation')
    assert result.name == SessionName(title='A name', tags=['one'])
    [(messages, info)] = asked
    assert info.function_tools == []
    assert info.model_settings is not None
    assert info.model_settings['max_tokens'] == 250
    [request] = messages
    assert isinstance(request, ModelRequest)
    assert [part.content for part in request.parts if isinstance(part, UserPromptPart)] == ['the conversation']
    assert result.tokens > 0


async def test_model_is_asked_twice_at_most() -> None:
    model, asked = answers({'title': ''}, {'title': 'A name'})
    assert (await generate_name(model=model, prompt='x')).name.title == 'A name'
    assert len(asked) == 2
    model, asked = answers({'title': ''}, {'title': ''}, {'title': 'A name'})
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one depends on which limit is met first
        await generate_name(model=model, prompt='x')
    assert len(asked) == 2
    assert isinstance(caught.value, UsageLimitExceeded) or 'retries' in str(caught.value)


async def test_requests_are_attributed_to_the_namer_in_one_layer_of_spans() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    model, _ = answers({'title': 'A name'})
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        await generate_name(model=model, prompt='x')
    finally:
        Agent.instrument_all(False)
    spans = exporter.get_finished_spans()
    assert {(span.attributes or {})['gen_ai.agent.name'] for span in spans} == {'session_namer'}
    assert sorted(span.name.split()[0] for span in spans) == ['chat', 'invoke_agent']
