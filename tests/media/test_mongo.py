from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.errors import (
    ConfigurationError,
    MediaCorruptionError,
    MediaNotFoundError,
    NotStorableError,
    StoreError,
    StoreLoopError,
    StoreUnavailableError,
)
from harness_temporal.media import MediaContext, MongoMediaStore, media_uri
from harness_temporal.media.blob import Blob
from harness_temporal.records import utc_now
from harness_temporal.stores import MongoStepStore
from harness_temporal.testing.samples import an_event
from tests.mongo_server import embedded_mongo

pymongo = pytest.importorskip('pymongo')
from pymongo import AsyncMongoClient, MongoClient  # noqa: E402
from pymongo.asynchronous.collection import AsyncCollection  # noqa: E402
from pymongo.errors import DuplicateKeyError  # noqa: E402
from pymongo.monitoring import CommandListener, CommandStartedEvent  # noqa: E402

from harness_temporal.databases.mongo import Database  # noqa: E402
from harness_temporal.media.mongo.collections import Manifests  # noqa: E402

pytestmark = pytest.mark.mongo
NOWHERE = 'mongodb://127.0.0.1:1/'
KIB = 1 << 10
FUTURE = utc_now() + timedelta(days=1)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def media(mongo: str, database: str) -> AsyncIterator[MongoMediaStore]:
    store = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=KIB)
    yield store
    await store.aclose()


@pytest.fixture
def contents(mongo: str, database: str) -> Iterator[Any]:
    """Yield the database, to look at and to spoil."""
    with MongoClient[dict[str, Any]](mongo) as client:
        yield client[database]


class Sent(CommandListener):
    """Keeps the names of the commands that are sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def make_old(contents: Any) -> None:
    """Let everything that is there be written long ago."""
    contents['media'].update_many({}, {'$set': {'touched_at': microseconds(LONG_AGO)}})
    contents['media_chunks'].update_many({}, {'$set': {'written_at': microseconds(LONG_AGO)}})


def add_chunks(contents: Any, data: bytes, *times: datetime) -> None:
    """Insert the chunks of an upload that has no manifest."""
    upload = hashlib.sha256(data).digest() + uuid4().bytes
    contents['media_chunks'].insert_many(
        [
            {'_id': upload + index.to_bytes(4, 'big'), 'data': data, 'written_at': microseconds(moment)}
            for index, moment in enumerate(times)
        ]
    )


def count_chunks(contents: Any) -> int:
    return contents['media_chunks'].count_documents({})


# --- settings ---


@pytest.mark.parametrize(
    'name', ['', 'a$b', 'a\x00b', '.a', 'a.', 'a..b', '1a', '-a', 'a b', 'é', 'system.media', 'a' * 121, 'a\n']
)
def test_collection_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match='`collection`'):
        MongoMediaStore(db_url=NOWHERE, collection=name)


@pytest.mark.parametrize('size', [-1, 0, KIB - 1, (15 << 20) + 1])
def test_chunk_size_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ConfigurationError, match='`chunk_size_bytes` must be from 1024 to 15728640'):
        MongoMediaStore(db_url=NOWHERE, chunk_size_bytes=size)


async def test_one_place_has_to_be_given(mongo: str) -> None:
    opened = Database(None, mongo, 'media', timeout=30)
    for given in ({}, {'client': AsyncMongoClient[Any](mongo), 'db_url': mongo}, {'db_url': mongo, 'database': opened}):
        with pytest.raises(ConfigurationError, match='`client`'):
            MongoMediaStore(**given)


def test_missing_driver_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['pymongo'] = None\n"
        'from harness_temporal.media import MongoMediaStore\n'
        "MongoMediaStore(db_url='mongodb://127.0.0.1')"
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, check=False)
    assert "ConfigurationError: `MongoMediaStore` needs pymongo: install 'harness-temporal[mongo]'." in done.stderr


# --- the client ---


async def test_given_client_stays_open(mongo: str, database: str) -> None:
    async with AsyncMongoClient[Any](mongo) as client:
        media = MongoMediaStore(client, database=database)
        uri = await media.put(b'x')
        await media.aclose()
        assert await client[database]['media'].count_documents({}) == 1
        with pytest.raises(StoreError, match='the store is closed'):
            await media.get(uri)


async def test_database_of_a_step_store_is_shared_and_stays_open(mongo: str, database: str) -> None:
    opened = Database(None, mongo, database, timeout=30)
    first, second = MongoMediaStore(database=opened), MongoMediaStore(database=opened, collection='more')
    uri = await first.put(b'x')
    await first.aclose()
    assert await first.get(uri) == b'x'
    assert not await second.exists(uri)
    await opened.aclose()


async def test_steps_and_blobs_of_one_database_do_not_meet(mongo: str, database: str, media: MongoMediaStore) -> None:
    steps = MongoStepStore(db_url=mongo, database=database)
    await steps.append_event(an_event())
    await media.put(b'x')
    assert [blob.size async for blob in media.blobs()] == [1]
    assert len(await steps.list_events(run_id='run-1')) == 1
    await steps.aclose()


def test_store_is_used_in_one_loop_only(mongo: str, database: str) -> None:
    media = MongoMediaStore(db_url=mongo, database=database)

    async def use_and_close() -> None:
        uri = await media.put(b'x')
        for call in (lambda: media.get(uri), lambda: media.put(b'y'), lambda: media.exists(uri)):
            with pytest.raises(StoreLoopError, match=r'one store .* per event loop'):
                await asyncio.to_thread(asyncio.run, call())
        assert await media.get(uri) == b'x'
        await media.aclose()

    asyncio.run(use_and_close())


async def test_a_server_that_does_not_answer_is_not_an_absent_blob() -> None:
    with socket.create_server(('127.0.0.1', 0)) as silent:
        media = MongoMediaStore(db_url=f'mongodb://127.0.0.1:{silent.getsockname()[1]}/', timeout=0.3)
        uri = media_uri(b'x')
        for call in (media.exists(uri), media.get(uri), media.get_metadata(uri), media.put(b'x')):
            with pytest.raises(StoreUnavailableError):
                await call
        await media.aclose()


async def test_user_who_may_only_read_reads_and_is_told_on_a_write() -> None:
    with embedded_mongo() as server:
        writer = MongoMediaStore(db_url=server.url, database='runs')
        uri = await writer.put(b'x')
        await writer.aclose()
        with MongoClient[Any](server.url) as client:
            client['admin'].command('createUser', 'reader', pwd='secret', roles=[{'role': 'read', 'db': 'runs'}])
        server.stop()
        server.start('--auth')
        reader = MongoMediaStore(db_url=server.url.replace('//', '//reader:secret@'), database='runs')
        assert await reader.get(uri) == b'x'
        for call in (reader.put(b'x'), reader.put(b'y'), reader.delete(uri[-64:], untouched_since=FUTURE)):
            with pytest.raises(StoreError, match='may not do this'):
                await call
        await reader.aclose()
        stranger = MongoMediaStore(db_url=server.url.replace('//', '//reader:wrong@'), database='runs')
        with pytest.raises(StoreError) as caught:
            await stranger.exists(uri)
        assert type(caught.value) is StoreError
        await stranger.aclose()


# --- bytes ---


async def test_a_blob_that_no_document_holds_comes_back(mongo: str, database: str, contents: Any) -> None:
    media = MongoMediaStore(db_url=mongo, database=database)
    data = os.urandom((17 << 20) + 1)
    assert await media.get(await media.put(data)) == data
    assert count_chunks(contents) == 3
    await media.aclose()


@pytest.mark.parametrize('size', [0, 1, 5 * KIB - 1, 5 * KIB, 5 * KIB + 1])
async def test_stores_with_other_chunk_sizes_share_the_blob(
    mongo: str, database: str, contents: Any, size: int
) -> None:
    data = os.urandom(size)
    for chunk_size in (KIB, KIB + 1, 5 * KIB, 15 << 20):
        writer = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=chunk_size)
        reader = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=2 * KIB)
        uri = await writer.put(data)
        assert count_chunks(contents) == -(-size // chunk_size)
        assert await reader.get(await reader.put(data)) == data
        assert await reader.delete(uri[-64:], untouched_since=FUTURE)
        assert count_chunks(contents) == 0
        await writer.aclose()
        await reader.aclose()


async def test_a_present_blob_is_only_touched(mongo: str, database: str, media: MongoMediaStore, contents: Any) -> None:
    await media.put(b'x' * 3000, context=MediaContext(media_type='image/png', metadata={'a': 'b'}))
    (first,) = contents['media'].find()
    make_old(contents)
    sent = Sent()
    async with AsyncMongoClient[Any](mongo, event_listeners=[sent]) as client:
        again = MongoMediaStore(client, database=database)
        assert not await again.exists(media_uri(b'something else'))
        sent.names.clear()
        await again.put(b'x' * 3000, context=MediaContext(media_type='text/plain', metadata={'c': 'd'}))
        assert sent.names == ['update']
    (second,) = contents['media'].find()
    assert second.pop('touched_at') >= first.pop('touched_at')
    assert second == first
    assert count_chunks(contents) == 3


async def test_a_clock_that_is_late_does_not_age_a_blob(
    media: MongoMediaStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = await media.put(b'x')
    monkeypatch.setattr('harness_temporal.media.mongo.collections.utc_now', lambda: LONG_AGO)
    await media.put(b'x')
    assert not await media.delete(uri[-64:], untouched_since=utc_now() - timedelta(hours=1))


# --- what is said about a blob ---


async def test_metadata_is_text_and_not_a_document(media: MongoMediaStore, contents: Any) -> None:
    metadata = {'$set': '$inc', 'a.b': '.', 'a\x00b': '\x00', '': '', '\ud800': '\udc00', '_id': 'x', '\uf8ff': 'é'}
    context = MediaContext(media_type='text/\x00\ud800é', metadata=metadata)
    uri = await media.put(b'x', context=context)
    assert await media.get_metadata(uri) == metadata
    (manifest,) = contents['media'].find()
    assert isinstance(manifest['metadata'], str)
    assert manifest['media_type'] == 'text/\uf8ff0000\uf8ffd800é'


@pytest.mark.parametrize(
    'context', [MediaContext(metadata={'a': 'é' * (8 << 20)}), MediaContext(media_type='x' * (16 << 20))]
)
async def test_what_is_too_much_for_a_manifest_is_refused_before_anything_is_written(
    media: MongoMediaStore, contents: Any, context: MediaContext
) -> None:
    with pytest.raises(NotStorableError, match='MediaContext'):
        await media.put(b'x', context=context)
    assert contents.list_collection_names() == []


async def test_the_most_that_may_be_said_is_stored(media: MongoMediaStore) -> None:
    metadata = {'a': 'x' * ((15 << 20) - len('{"a": ""}'))}
    assert await media.get_metadata(await media.put(b'x', context=MediaContext(metadata=metadata))) == metadata
    assert [blob.size async for blob in media.blobs()] == [1]


async def test_collections_have_the_given_name(mongo: str, database: str, contents: Any) -> None:
    media = MongoMediaStore(db_url=mongo, database=database, collection='of.agents-1')
    uri = await media.put(b'x')
    assert set(contents.list_collection_names()) == {'of.agents-1', 'of.agents-1_chunks'}
    assert await media.get(uri) == b'x'
    await media.aclose()


# --- damage ---


@pytest.mark.parametrize('index', [0, 1, 2])
async def test_missing_chunk_is_not_an_absent_blob(media: MongoMediaStore, contents: Any, index: int) -> None:
    uri = await media.put(os.urandom(3 * KIB))
    names = sorted(chunk['_id'] for chunk in contents['media_chunks'].find())
    contents['media_chunks'].delete_one({'_id': names[index]})
    with pytest.raises(MediaCorruptionError, match=f'chunk {index} is missing'):
        await media.get(uri)


@pytest.mark.parametrize('index', [0, 1, 2])
@pytest.mark.parametrize('data', [b'', b'\x00', bytes(KIB), bytes(2 * KIB), 'text', 1, None])
async def test_damaged_chunk_is_told(media: MongoMediaStore, contents: Any, index: int, data: object) -> None:
    uri = await media.put(b'\x01' * 2 * KIB + b'\x01\x01')
    names = sorted(chunk['_id'] for chunk in contents['media_chunks'].find())
    contents['media_chunks'].update_one({'_id': names[index]}, {'$set': {'data': data}})
    with pytest.raises(MediaCorruptionError):
        await media.get(uri)


@pytest.mark.parametrize(
    'damage',
    [{'size': None}, {'size': 1}, {'size': 10**9}, {'upload': b''}, {'upload': 1}]
    + [{'chunk_size': size} for size in (0, -1, 'x', KIB - 1, KIB + 1, 10**9)],
)
async def test_damaged_manifest_is_told(media: MongoMediaStore, contents: Any, damage: dict[str, object]) -> None:
    uri = await media.put(os.urandom(3 * KIB))
    contents['media'].update_one({}, {'$set': damage})
    with pytest.raises(MediaCorruptionError):
        await media.get(uri)


@pytest.mark.parametrize('damage', ['x', '[]', '{"a": 1}', 1, None])
async def test_damaged_metadata_is_told(media: MongoMediaStore, contents: Any, damage: object) -> None:
    uri = await media.put(b'x', context=MediaContext(metadata={'a': 'b'}))
    contents['media'].update_one({}, {'$set': {'metadata': damage}})
    with pytest.raises(MediaCorruptionError):
        await media.get_metadata(uri)
    assert await media.get(uri) == b'x'


async def test_chunks_of_a_damaged_manifest_are_no_leftovers(media: MongoMediaStore, contents: Any) -> None:
    await media.put(b'x')
    contents['media'].update_one({}, {'$unset': {'upload': ''}})
    with pytest.raises(MediaCorruptionError, match='upload'):
        await media.delete_leftovers(untouched_since=FUTURE)
    assert count_chunks(contents) == 1


# --- many writers ---


async def test_two_uploads_of_one_blob_both_succeed_and_one_stays(
    mongo: str, database: str, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = asyncio.Barrier(3)
    achunks = Blob.achunks

    async def met(blob: Blob, size: int) -> AsyncIterator[bytes]:
        await together.wait()
        async for chunk in achunks(blob, size):
            yield chunk

    monkeypatch.setattr(Blob, 'achunks', met)
    data = os.urandom(30 * KIB)
    stores = [
        MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=size) for size in (KIB, 7 * KIB, 7 * KIB)
    ]
    contexts = [MediaContext(metadata={'writer': str(number)}) for number in range(3)]
    uris = await asyncio.gather(
        *[store.put(data, context=context) for store, context in zip(stores, contexts, strict=True)]
    )
    assert uris == [media_uri(data)] * 3
    assert await stores[0].get(uris[0]) == data
    (manifest,) = contents['media'].find()
    uploads = {chunk['_id'][:48] for chunk in contents['media_chunks'].find()}
    assert uploads == {manifest['upload']}
    assert await stores[0].get_metadata(uris[0]) in [context.metadata for context in contexts]
    for store in stores:
        await store.aclose()


async def test_a_put_whose_manifest_is_beaten_on_the_server_succeeds(
    mongo: str, database: str, media: MongoMediaStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(6 * KIB)
    faster = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=3 * KIB)

    async def beaten(*_: object, **__: object) -> None:
        monkeypatch.undo()
        await faster.put(data, context=MediaContext(metadata={'writer': 'faster'}))
        raise DuplicateKeyError('E11000 duplicate key error')

    monkeypatch.setattr(AsyncCollection, 'find_one_and_update', beaten)
    uri = await media.put(data, context=MediaContext(metadata={'writer': 'slower'}))
    assert await media.get(uri) == data
    assert await media.get_metadata(uri) == {'writer': 'faster'}
    assert count_chunks(contents) == 2
    await faster.aclose()


async def test_a_put_beats_a_delete_that_means_an_earlier_one(mongo: str, database: str, contents: Any) -> None:
    stores = [MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=KIB) for _ in range(3)]
    data = os.urandom(3 * KIB)
    uri = media_uri(data)
    deletions = 0
    for turn in range(60):
        await stores[0].put(data)
        make_old(contents)
        moment = utc_now()

        async def put(turns: int = turn % 6) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await stores[0].put(data)

        deleted, *_ = await asyncio.gather(stores[1].delete(uri[-64:], untouched_since=moment), put())
        deletions += deleted
        assert await stores[2].get(uri) == data
        assert count_chunks(contents) == 3
    assert deletions
    for store in stores:
        await store.aclose()


async def test_readers_meet_a_whole_blob_or_none(
    mongo: str, database: str, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MongoDB finds and modifies as one; the server in its place at times reports what another one did.
    as_one = asyncio.Lock()
    for name in ('put', 'delete'):
        monkeypatch.setattr(Manifests, name, _one_by_one(getattr(Manifests, name), as_one))
    stores = [
        MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=size) for size in (KIB, 3 * KIB, 2 * KIB)
    ]
    data = os.urandom(20 * KIB)
    uri = media_uri(data)
    found = {True: 0, False: 0}
    is_over = asyncio.Event()

    async def write(store: MongoMediaStore) -> None:
        for _ in range(25):
            await store.put(data)
            await store.delete(uri[-64:], untouched_since=FUTURE)

    async def read() -> None:
        while not is_over.is_set():
            try:
                assert await stores[2].get(uri) == data
                found[True] += 1
            except MediaNotFoundError:
                found[False] += 1

    readers = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.gather(*[write(store) for store in stores[:2]])
    is_over.set()
    await asyncio.gather(*readers)
    assert found[False]
    assert count_chunks(contents) == contents['media'].count_documents({}) == 0
    for store in stores:
        await store.aclose()


def _one_by_one(do: Callable[..., Awaitable[Any]], lock: asyncio.Lock) -> Callable[..., Awaitable[Any]]:
    async def alone(*arguments: Any) -> Any:
        async with lock:
            return await do(*arguments)

    return alone


async def test_a_blob_that_is_deleted_while_it_is_read_is_not_found(media: MongoMediaStore) -> None:
    uri = await media.put(os.urandom(5 * KIB))
    async with media.open(uri) as pieces:
        await anext(pieces)
        await media.delete(uri[-64:], untouched_since=FUTURE)
        with pytest.raises(MediaNotFoundError):
            await anext(pieces)


async def test_a_blob_that_is_deleted_and_put_again_while_it_is_read_is_read_on(
    mongo: str, database: str, media: MongoMediaStore
) -> None:
    data = os.urandom(5 * KIB)
    uri = await media.put(data)
    other = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=3 * KIB)
    read = b''
    async with media.open(uri) as pieces:
        read += await anext(pieces)
        await media.delete(uri[-64:], untouched_since=FUTURE)
        await other.put(data)
        async for piece in pieces:
            read += piece
    assert read == data
    await other.aclose()


# --- leftovers ---

_WRITER = """
import asyncio, sys
from harness_temporal.media import MongoMediaStore

media = MongoMediaStore(db_url=sys.argv[1], database=sys.argv[2], chunk_size_bytes=1024)
asyncio.run(media.put(b'x' * (20 << 20)))
"""


def kill_a_writer_amid_its_upload(contents: Any, *arguments: str) -> None:
    present, deadline = count_chunks(contents), time.monotonic() + 60
    with subprocess.Popen([sys.executable, '-c', _WRITER, *arguments]) as writer:
        while count_chunks(contents) < present + 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        writer.kill()


async def test_what_a_killed_writer_left_is_deleted(
    mongo: str, database: str, media: MongoMediaStore, contents: Any
) -> None:
    kept = os.urandom(3 * KIB)
    uri = await media.put(kept)
    await asyncio.to_thread(kill_a_writer_amid_its_upload, contents, mongo, database)
    left = count_chunks(contents) - 3
    assert left >= 10
    assert [blob.size async for blob in media.blobs()] == [len(kept)]
    assert await media.delete_leftovers(untouched_since=utc_now() - timedelta(hours=1)) == 0
    assert await media.delete_leftovers(untouched_since=FUTURE) == left
    assert count_chunks(contents) == 3
    assert await media.get(uri) == kept


async def test_an_upload_that_goes_on_is_no_leftover(media: MongoMediaStore, contents: Any) -> None:
    add_chunks(contents, b'living', LONG_AGO, LONG_AGO, utc_now())
    add_chunks(contents, b'dead', LONG_AGO, LONG_AGO)
    assert await media.delete_leftovers(untouched_since=utc_now() - timedelta(hours=1)) == 2
    assert [chunk['data'] for chunk in contents['media_chunks'].find()] == [b'living'] * 3


async def test_a_second_upload_of_a_blob_is_a_leftover_and_the_first_is_not(
    media: MongoMediaStore, contents: Any
) -> None:
    data = os.urandom(KIB)
    uri = await media.put(data)
    add_chunks(contents, data, utc_now())
    make_old(contents)
    assert await media.delete_leftovers(untouched_since=utc_now() - timedelta(hours=1)) == 1
    assert await media.get(uri) == data


async def test_leftovers_beyond_one_page_are_found(
    media: MongoMediaStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('harness_temporal.media.mongo.store._PAGE', 4)
    blobs = [os.urandom(3 * KIB) for _ in range(5)]
    uris = [await media.put(blob) for blob in blobs]
    for number in range(5):
        add_chunks(contents, b'%d' % number, *[LONG_AGO] * 7)
    assert await media.delete_leftovers(untouched_since=FUTURE) == 35
    assert [await media.get(uri) for uri in uris] == blobs


async def test_documents_of_others_are_left_alone(media: MongoMediaStore, contents: Any) -> None:
    names = ['text', 1, bytes(36), b'\xff' * 36, b'\xff' * 36 + bytes(4), b'\xff' * 60]
    foreign = [{'_id': name, 'data': b'x', 'written_at': 0} for name in names]
    contents['media_chunks'].insert_many(foreign)
    contents['media'].insert_one({'_id': '0' * 64, 'size': 1})
    await media.put(b'x')
    add_chunks(contents, b'dead', LONG_AGO)
    assert await media.delete_leftovers(untouched_since=FUTURE) == 1
    assert [blob.size async for blob in media.blobs()] == [1]
    assert all(contents['media_chunks'].find_one({'_id': name}) for name in names)
    assert contents['media'].count_documents({}) == 2


async def test_an_upload_that_was_held_up_for_long_is_not_finished(
    media: MongoMediaStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, now = os.urandom(3 * KIB), utc_now()
    for held_up_at in range(1, 5):
        minutes = iter([*([0] * held_up_at), *([6] * 5)])
        monkeypatch.setattr(
            'harness_temporal.media.mongo.store.utc_now', lambda clock=minutes: now + timedelta(minutes=next(clock))
        )
        with pytest.raises(StoreUnavailableError, match='held up for 0:06:00'):
            await media.put(data)
        assert not await media.exists(media_uri(data))
        assert count_chunks(contents) == sum(range(held_up_at))
    slow = iter([0, 4, 8, 12, 16])
    monkeypatch.setattr('harness_temporal.media.mongo.store.utc_now', lambda: now + timedelta(minutes=next(slow)))
    assert await media.get(await media.put(data)) == data


async def test_a_put_that_was_cancelled_leaves_only_leftovers(
    media: MongoMediaStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, achunks = asyncio.Event(), Blob.achunks

    async def stuck(blob: Blob, size: int) -> AsyncIterator[bytes]:
        async for chunk in achunks(blob, size):
            yield chunk
            arrived.set()
            await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(Blob, 'achunks', stuck)
        put = asyncio.create_task(media.put(b'x' * 3 * KIB))
        await arrived.wait()
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
    uri = await media.put(b'x' * 3 * KIB)
    assert count_chunks(contents) == 4
    assert await media.delete_leftovers(untouched_since=FUTURE) == 1
    assert await media.get(uri) == b'x' * 3 * KIB
