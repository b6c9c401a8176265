"""`MediaExternalizer` in plain runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from harness_temporal.errors import ConfigurationError
from harness_temporal.media import (
    DiskMediaStore,
    MediaContext,
    MediaExternalizer,
    make_static_public_url,
    media_uri,
)
from harness_temporal.step_persistence import InMemoryStepStore, StepPersistence

LARGE = bytes(range(256)) * 256
SMALL = LARGE[:-1]


def url_of(data: bytes) -> str:
    return f'https://cdn.test/{media_uri(data)[-64:]}.bin'


@pytest.fixture
def media(tmp_path: Path) -> DiskMediaStore:
    return DiskMediaStore(tmp_path / 'blobs', public_url=make_static_public_url('https://cdn.test'))


class Recording:
    """A model that keeps what it was sent, and calls a tool in its first answer if it is told to."""

    def __init__(self, calls: str | None = None) -> None:
        self.calls = calls
        self.sent: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(list(messages))
        if self.calls and not any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[ToolCallPart(self.calls, {}, tool_call_id='call')])
        return ModelResponse(parts=[TextPart('done')])


def contents(messages: list[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart | ToolReturnPart)
    ]


@pytest.mark.parametrize(
    ('media_type', 'kind'),
    [
        ('image/png', ImageUrl),
        ('audio/mpeg', AudioUrl),
        ('video/mp4', VideoUrl),
        ('application/pdf', DocumentUrl),
    ],
)
async def test_a_large_file_of_a_prompt_becomes_a_url_in_request_and_history(
    media: DiskMediaStore, media_type: str, kind: Any
) -> None:
    model = Recording()
    agent = Agent(FunctionModel(model), capabilities=[MediaExternalizer(media)])
    given = BinaryContent(LARGE, media_type=media_type, identifier='mine', vendor_metadata={'detail': 'low'})
    result = await agent.run(['look at', given])
    expected = kind(url_of(LARGE), media_type=media_type, identifier='mine', vendor_metadata={'detail': 'low'})
    assert contents(model.sent[0]) == [['look at', expected]]
    assert contents(result.all_messages()) == [['look at', expected]]
    assert await media.get(media_uri(LARGE)) == LARGE
    assert given.data == LARGE


async def test_files_of_tool_returns_become_urls_wherever_they_are(media: DiskMediaStore) -> None:
    model = Recording('show')
    agent = Agent(FunctionModel(model), capabilities=[MediaExternalizer(media)])
    image = BinaryContent(LARGE, media_type='image/png')

    @agent.tool_plain
    def show() -> Any:
        return {'first': image, 'more': [image, {'deep': image}], 'text': 'x'}

    result = await agent.run('go')
    url = ImageUrl(url_of(LARGE), media_type='image/png', identifier=image.identifier)
    expected = {'first': url, 'more': [url, {'deep': url}], 'text': 'x'}
    assert contents(model.sent[1]) == ['go', expected]
    assert contents(result.all_messages()) == ['go', expected]


async def test_what_is_small_or_has_no_url_stays(media: DiskMediaStore, tmp_path: Path) -> None:
    def some(uri: str, context: MediaContext) -> str | None:
        return None

    unheard = DiskMediaStore(tmp_path / 'no', public_url=some)
    files = [
        BinaryContent(SMALL, media_type='image/png'),
        BinaryContent(LARGE, media_type='application/x-unheard-of'),
    ]
    for store, given in ((media, files), (unheard, [BinaryContent(LARGE, media_type='image/png')])):
        model = Recording()
        await Agent(FunctionModel(model), capabilities=[MediaExternalizer(store)]).run(given)
        assert contents(model.sent[0]) == [given]


async def test_a_given_history_is_used_with_urls_and_left_as_it_was(media: DiskMediaStore) -> None:
    image = BinaryContent(LARGE, media_type='image/png')
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart([image])]),
        ModelResponse(parts=[TextPart('seen')]),
    ]
    model = Recording()
    result = await Agent(FunctionModel(model), capabilities=[MediaExternalizer(media)]).run(
        'and?', message_history=history
    )
    url = ImageUrl(url_of(LARGE), media_type='image/png', identifier=image.identifier)
    assert contents(model.sent[0]) == [[url], 'and?']
    assert contents(result.all_messages()) == [[url], 'and?']
    assert contents(history) == [[image]]


async def test_a_file_is_put_once_however_many_steps_follow(
    media: DiskMediaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[int] = []
    put = media.put

    async def counted(data: bytes, *, context: MediaContext) -> str:
        puts.append(len(data))
        return await put(data, context=context)

    monkeypatch.setattr(media, 'put', counted)
    model = Recording('again')
    agent = Agent(FunctionModel(model), capabilities=[MediaExternalizer(media)])

    @agent.tool_plain
    def again() -> str:
        return 'text'

    image = BinaryContent(LARGE, media_type='image/png')
    await agent.run([image, image])
    assert puts == [len(LARGE)]
    assert len(model.sent) == 2


async def test_snapshots_have_the_urls(media: DiskMediaStore) -> None:
    store = InMemoryStepStore()
    agent = Agent(
        FunctionModel(Recording('show')),
        capabilities=[MediaExternalizer(media), StepPersistence[None](store=store, run_id='run-1')],
    )

    @agent.tool_plain
    def show() -> BinaryContent:
        return BinaryContent(LARGE, media_type='image/png')

    result = await agent.run('go')
    latest = await store.latest_snapshot(run_id='run-1')
    assert latest is not None
    assert latest.messages == result.all_messages()
    assert isinstance(contents(latest.messages)[1], ImageUrl)


def test_a_threshold_below_one_is_refused(media: DiskMediaStore) -> None:
    with pytest.raises(ConfigurationError, match='threshold_bytes'):
        MediaExternalizer(media, threshold_bytes=0)
