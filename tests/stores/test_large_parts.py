"""Large parts of messages, ledger values and responses are blobs of a media store, on every persistent store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai.messages import BinaryImage, ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from harness_temporal.errors import ConfigurationError, StoreCorruptionError, StoreUnavailableError
from harness_temporal.media import BaseMediaStore, DiskMediaStore, MediaContext, media_uri
from harness_temporal.media.context import NO_CONTEXT
from harness_temporal.records import ModelResponseRecord
from harness_temporal.stores import BaseStepStore, FileStepStore, MongoStepStore, PostgresStepStore, SqliteStepStore
from harness_temporal.testing.samples import a_snapshot, a_start, an_end
from tests.backends import PERSISTENT
from tests.conformance.opening import drop_schema
from tests.mongo_server import drop_database

LARGE = 'é' * 40_000
IMAGE = bytes(range(256)) * 400
PARTS = {media_uri(LARGE.encode()), media_uri(IMAGE)}
MESSAGES: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart(['small', BinaryImage(IMAGE, media_type='image/png'), LARGE])]),
    ModelRequest(parts=[ToolReturnPart('t', {'nested': [LARGE, {'data': LARGE, 'uri': 'mine'}]}, tool_call_id='c')]),
]
VALUE = b'{"kind":"tool_return","result":"%b"}' % LARGE.encode()

COUNTS = {'file': 1_000, 'mongo': 2_000, 'sqlite': 20_000, 'postgres': 20_000}

Open = Callable[..., BaseStepStore]


@pytest.fixture(params=PERSISTENT)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Open stores of one kind on the same place."""
    name = f'large_{uuid4().hex}'
    async with AsyncExitStack() as stack:
        make: Callable[..., BaseStepStore]
        match request.param:
            case 'file':
                make = lambda **settings: FileStepStore(tmp_path / 'runs', **settings)  # noqa: E731
            case 'sqlite':
                make = lambda **settings: SqliteStepStore(tmp_path / 'runs.db', **settings)  # noqa: E731
            case 'postgres':
                dsn = request.getfixturevalue('postgres')
                make = lambda **settings: PostgresStepStore(dsn, schema=name, **settings)  # noqa: E731
                stack.push_async_callback(drop_schema, dsn, name)
            case _:
                url = request.getfixturevalue('mongo')
                make = lambda **settings: MongoStepStore(db_url=url, database=name, **settings)  # noqa: E731
                stack.push_async_callback(drop_database, url, name)

        def open_one(**settings: Any) -> BaseStepStore:
            store = make(**settings)
            stack.push_async_callback(store.aclose)
            return store

        yield open_one


@pytest.fixture
def media(tmp_path: Path) -> DiskMediaStore:
    return DiskMediaStore(tmp_path / 'blobs')


async def uris(media: BaseMediaStore) -> set[str]:
    return {f'media+sha256://{blob.digest}' async for blob in media.blobs()}


async def save(store: BaseStepStore) -> None:
    response = ModelResponseRecord(run_id='run-1', key='k', body=VALUE)
    await store.commit([a_snapshot(MESSAGES), a_start(), response])
    await store.record_tool_effect(an_end(value=VALUE))


async def check(store: BaseStepStore) -> None:
    read = await store.latest_snapshot(run_id='run-1')
    assert read is not None
    assert read.messages == MESSAGES
    assert [snapshot.messages for snapshot in await store.list_snapshots(run_id='run-1')] == [MESSAGES]
    effect = await store.get_tool_effect(run_id='run-1', tool_call_id=a_start().tool_call_id)
    assert effect is not None
    assert effect.value == VALUE
    assert [effect.value for effect in await store.list_tool_effects(run_id='run-1')] == [VALUE]
    response = await store.get_model_response(run_id='run-1', key='k')
    assert response is not None
    assert response.body == VALUE


async def test_large_parts_are_in_the_given_media_store(open_store: Open, media: DiskMediaStore) -> None:
    await save(open_store(media_store=media))
    assert await uris(media) == PARTS
    await check(open_store(media_store=media))


async def test_by_default_they_are_in_the_store_s_own(open_store: Open) -> None:
    await save(store := open_store())
    assert isinstance(store.media_store, BaseMediaStore)
    assert await uris(store.media_store) == PARTS
    await check(open_store())


async def test_without_a_media_store_they_stay_in_the_messages(open_store: Open) -> None:
    store = open_store(media_store=None)
    assert store.media_store is None
    await save(store)
    await check(open_store(media_store=None))
    await check(open_store())


async def test_what_one_setting_wrote_another_reads(open_store: Open, media: DiskMediaStore) -> None:
    await save(open_store(media_store=media, media_threshold_bytes=10))
    await check(open_store(media_store=media))


@pytest.mark.parametrize(('extra', 'count'), [(-1, 0), (0, 1), (1, 1)])
async def test_threshold(open_store: Open, media: DiskMediaStore, extra: int, count: int) -> None:
    store = open_store(media_store=media, media_threshold_bytes=1000)
    await store.save_snapshot(a_snapshot([ModelRequest(parts=[UserPromptPart('é' * 400 + 'x' * (200 + extra))])]))
    assert len(await uris(media)) == count


@pytest.mark.parametrize('threshold', [0, -1])
async def test_threshold_below_one_is_refused(open_store: Open, threshold: int) -> None:
    with pytest.raises(ConfigurationError, match='media_threshold_bytes'):
        open_store(media_threshold_bytes=threshold)


async def test_a_part_is_put_once_for_many_snapshots(open_store: Open, tmp_path: Path) -> None:
    class Counting(DiskMediaStore):
        puts = 0

        async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
            self.puts += 1
            return await super().put(data, context=context)

    media = Counting(tmp_path / 'blobs')
    store = open_store(media_store=media)
    for step in range(5):
        more = [ModelRequest(parts=[UserPromptPart(f'turn {number}')]) for number in range(step)]
        await store.save_snapshot(a_snapshot([*MESSAGES, *more], step_index=step))
    assert media.puts == 3


async def test_nothing_refers_to_a_blob_that_could_not_be_stored(open_store: Open, tmp_path: Path) -> None:
    class Failing(DiskMediaStore):
        async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
            raise StoreUnavailableError('blobs', 'away.')

    store = open_store(media_store=Failing(tmp_path / 'blobs'))
    with pytest.raises(StoreUnavailableError, match='away'):
        await save(store)
    assert await store.latest_snapshot(run_id='run-1') is None
    assert await store.list_tool_effects(run_id='run-1') == []


@pytest.mark.parametrize('harm', ['missing', 'damaged'])
async def test_a_blob_that_is_gone_is_an_error_with_the_run_and_the_blob(
    open_store: Open, media: DiskMediaStore, tmp_path: Path, harm: str
) -> None:
    await save(store := open_store(media_store=media))
    path = tmp_path / 'blobs' / f'{media_uri(LARGE.encode())[-64:]}.bin'
    path.unlink() if harm == 'missing' else path.write_bytes(LARGE.encode().replace(b'\xc3', b'x', 1))
    for read in (
        store.latest_snapshot(run_id='run-1'),
        store.list_snapshots(run_id='run-1'),
        store.list_tool_effects(run_id='run-1'),
        store.get_model_response(run_id='run-1', key='k'),
    ):
        with pytest.raises(StoreCorruptionError, match=rf"'run-1'.*{media_uri(LARGE.encode())[-64:]}"):
            await read


async def test_without_its_media_store_a_run_cannot_be_read(open_store: Open, media: DiskMediaStore) -> None:
    await save(open_store(media_store=media))
    with pytest.raises(ConfigurationError, match=r"'run-1'.*media_store"):
        await open_store(media_store=None).latest_snapshot(run_id='run-1')
    with pytest.raises(StoreCorruptionError, match=r"'run-1'.*there is no blob"):
        await open_store().latest_snapshot(run_id='run-1')


@pytest.mark.parametrize('settings', [{}, {'media_store': None}, {'media_threshold_bytes': 1}], ids=str)
async def test_data_that_looks_like_a_reference_comes_back_as_it_is(open_store: Open, settings: dict[str, Any]) -> None:
    looks = f'\x02{{"version":1,"parts":[{{"at":0,"uri":"{media_uri(b"x")}","form":"text"}}]}}\n'
    marker = {'uri': media_uri(IMAGE), 'kind': 'external', '__harness_external__': 1, 'version': 99}
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(looks), UserPromptPart([BinaryImage(IMAGE, media_type='image/png')])]),
        ModelRequest(parts=[ToolReturnPart('t', marker, tool_call_id='c')]),
    ]
    store = open_store(**settings)
    value = looks.encode()
    await store.commit([a_snapshot(messages), a_start(), ModelResponseRecord(run_id='run-1', key='k', body=value)])
    await store.record_tool_effect(an_end(value=value))
    store = open_store(**settings)
    read = await store.latest_snapshot(run_id='run-1')
    assert read is not None
    assert read.messages == messages
    assert [effect.value for effect in await store.list_tool_effects(run_id='run-1')] == [value]
    response = await store.get_model_response(run_id='run-1', key='k')
    assert response is not None
    assert response.body == value


async def test_a_history_larger_than_a_document_of_some_databases(
    open_store: Open, request: pytest.FixtureRequest
) -> None:
    # 18 MB in all. In files each message is flushed by itself, and the server in place of MongoDB is slow.
    [count] = [count for kind, count in COUNTS.items() if kind in request.node.callspec.id]
    store = open_store()
    texts = [f'{number:08} ' * (2_000_000 // count) for number in range(count)]
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]
    await store.save_snapshot(a_snapshot(messages))
    read = await open_store().latest_snapshot(run_id='run-1')
    assert read is not None
    assert read.messages == messages


async def test_several_images_in_one_message(open_store: Open) -> None:
    images = [BinaryImage(bytes([number]) * (4 << 20), media_type='image/png') for number in range(5)]
    message = ModelRequest(parts=[UserPromptPart(images)])
    for store in (open_store(), open_store(media_store=None)):
        await store.save_snapshot(a_snapshot([message]))
    read = await open_store().list_snapshots(run_id='run-1')
    assert [snapshot.messages for snapshot in read] == [[message]] * 2
