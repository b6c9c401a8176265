from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from harness_temporal.errors import (
    ConfigurationError,
    NotStorableError,
    StoreCorruptionError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreUnavailableError,
)
from harness_temporal.stores import MongoStepStore
from harness_temporal.testing.samples import a_response, a_run, a_snapshot, a_start, an_end, an_event, turns
from tests.mongo_server import embedded_mongo

pymongo = pytest.importorskip('pymongo')
from pymongo import AsyncMongoClient, MongoClient  # noqa: E402
from pymongo.asynchronous.collection import AsyncCollection  # noqa: E402
from pymongo.errors import BulkWriteError, OperationFailure  # noqa: E402
from pymongo.monitoring import CommandListener, CommandStartedEvent  # noqa: E402

pytestmark = pytest.mark.mongo


@pytest.fixture
async def store(mongo: str, database: str) -> AsyncIterator[MongoStepStore]:
    store = MongoStepStore(db_url=mongo, database=database)
    yield store
    await store.aclose()


@pytest.fixture
def contents(mongo: str, database: str) -> Iterator[Any]:
    """Yield the database, to look at and to spoil."""
    with MongoClient[dict[str, Any]](mongo) as client:
        yield client[database]


# --- opening and closing ---


async def test_either_a_client_or_a_url_is_needed(mongo: str) -> None:
    with pytest.raises(ConfigurationError, match='either `client` or `db_url`'):
        MongoStepStore()
    async with AsyncMongoClient[Any](mongo) as client:
        with pytest.raises(ConfigurationError, match='either `client` or `db_url`'):
            MongoStepStore(client, db_url=mongo)


async def test_bad_url_is_a_configuration_error() -> None:
    store = MongoStepStore(db_url='http://127.0.0.1')
    with pytest.raises(ConfigurationError, match='db_url'):
        await store.get_run(run_id='run-1')


async def test_nothing_happens_before_the_first_use_and_then_the_wait_is_bounded() -> None:
    # Takes connections and says nothing, so that the driver keeps its sockets until it is closed.
    with socket.create_server(('127.0.0.1', 0)) as silent:
        silent.setblocking(False)
        store = MongoStepStore(db_url=f'mongodb://127.0.0.1:{silent.getsockname()[1]}/', timeout=0.3)
        with pytest.raises(BlockingIOError):
            silent.accept()
        with pytest.raises(StoreUnavailableError):
            await store.append_event(an_event())
        with pytest.raises(StoreUnavailableError):
            await store.list_runs()
        await store.aclose()


async def test_given_client_stays_open(mongo: str, database: str) -> None:
    async with AsyncMongoClient[Any](mongo) as client:
        store = MongoStepStore(client, database=database)
        await store.append_event(an_event())
        await store.aclose()
        await store.aclose()
        assert await client[database]['events'].count_documents({}) == 1
        with pytest.raises(StoreError, match='the store is closed'):
            await store.append_event(an_event())


async def test_closed_client_is_told(mongo: str, database: str) -> None:
    client = AsyncMongoClient[Any](mongo)
    store = MongoStepStore(client, database=database)
    await client.close()
    with pytest.raises(StoreError):
        await store.append_event(an_event())


def test_store_is_used_in_one_loop_only(mongo: str, database: str) -> None:
    store = MongoStepStore(db_url=mongo, database=database)

    async def use_and_close() -> None:
        await store.append_event(an_event())
        for _ in range(2):
            with pytest.raises(StoreLoopError, match=r'one store .* per event loop'):
                await asyncio.to_thread(asyncio.run, store.list_runs())
        await store.aclose()

    asyncio.run(use_and_close())


def test_client_of_another_loop_is_told(mongo: str, database: str) -> None:
    client = AsyncMongoClient[Any](mongo)

    async def first() -> None:
        await client.admin.command('ping')
        with pytest.raises(StoreLoopError, match=r'one store .* per event loop'):
            await asyncio.to_thread(asyncio.run, MongoStepStore(client, database=database).list_runs())
        await client.close()

    asyncio.run(first())


async def test_a_dozen_first_writes_at_once(mongo: str, database: str) -> None:
    stores = [MongoStepStore(db_url=mongo, database=database) for _ in range(12)]
    await asyncio.gather(*[store.append_event(an_event(step_index=index)) for index, store in enumerate(stores)])
    events = await stores[0].list_events(run_id='run-1')
    assert [event.seq for event in events] == list(range(1, 13))
    for store in stores:
        await store.aclose()


def test_missing_driver_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['pymongo'] = None\n"
        'from harness_temporal.step_persistence import *\n'
        'from harness_temporal.step_persistence import MongoStepStore\n'
        "MongoStepStore(db_url='mongodb://127.0.0.1')"
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, check=False)
    assert "ConfigurationError: `MongoStepStore` needs pymongo: install 'harness-temporal[mongo]'." in done.stderr


# --- servers that do not suit ---


async def test_standalone_server_is_refused() -> None:
    with embedded_mongo('--standalone') as server:
        store = MongoStepStore(db_url=server.url)
        with pytest.raises(StoreError, match=r'standalone .*rs\.initiate'):
            await store.append_event(an_event())
        with pytest.raises(StoreError, match=r'standalone .*rs\.initiate'):
            await store.list_runs()
        await store.aclose()


async def test_user_who_may_not_make_indexes_is_told() -> None:
    with embedded_mongo() as server:
        with MongoClient[Any](server.url) as client:
            client['admin'].command('createUser', 'reader', pwd='secret', roles=[{'role': 'read', 'db': 'runs'}])
        server.stop()
        server.start('--auth')
        url = server.url.replace('//', '//reader:secret@')
        store = MongoStepStore(db_url=url, database='runs')
        with pytest.raises(StoreError, match='createIndex'):
            await store.append_event(an_event())
        assert await store.list_runs() == []
        await store.aclose()
        stranger = MongoStepStore(db_url=server.url.replace('//', '//reader:wrong@'), database='runs')
        with pytest.raises(StoreError) as caught:
            await stranger.list_runs()
        assert type(caught.value) is StoreError
        await stranger.aclose()


async def test_duplicates_that_prevent_an_index_are_told(store: MongoStepStore, contents: Any) -> None:
    contents['events'].insert_many([{'run_id': 'run-1', 'idempotency_key': 'key'} for _ in range(2)])
    with pytest.raises(StoreSchemaError, match=r'`test_\w+\.events` cannot be made: what is there has duplicates'):
        await store.append_event(an_event())


async def test_server_that_comes_back_is_used_again() -> None:
    with embedded_mongo() as server:
        store = MongoStepStore(db_url=server.url, timeout=2)
        await store.commit([an_event(), a_start()])
        server.stop()
        with pytest.raises(StoreUnavailableError):
            await store.append_event(an_event())
        server.start()
        await store.append_event(an_event())
        assert [event.seq for event in await store.list_events(run_id='run-1')] == [2, 3]
        await store.aclose()


# --- transactions ---


async def test_writers_of_many_processes_on_one_run_all_succeed(mongo: str, database: str) -> None:
    stores = [MongoStepStore(db_url=mongo, database=database) for _ in range(4)]
    await asyncio.gather(*[stores[index % 4].commit([an_event(), an_event()]) for index in range(24)])
    assert [event.seq for event in await stores[0].list_events(run_id='run-1')] == list(range(1, 49))
    for store in stores:
        await store.aclose()


async def test_write_waits_for_a_transaction_that_a_dead_writer_left(store: MongoStepStore, contents: Any) -> None:
    await store.append_event(an_event())
    with contents.client.start_session() as session:
        session.start_transaction()
        contents['counters'].update_one({'_id': 'run-1'}, {'$inc': {'version': 1, 'next_seq': 1}}, session=session)
        write = asyncio.create_task(store.append_event(an_event()))
        await asyncio.sleep(0.2)
        assert not write.done()
        assert len(await store.list_events(run_id='run-1')) == 1
        session.abort_transaction()
    await write
    assert [event.seq for event in await store.list_events(run_id='run-1')] == [1, 2]


async def test_wait_for_other_writers_is_bounded(
    store: MongoStepStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('harness_temporal.stores.mongo.store.PATIENCE', 0.2)
    await store.append_event(an_event())
    with contents.client.start_session() as session:
        session.start_transaction()
        contents['counters'].update_one({'_id': 'run-1'}, {'$inc': {'version': 1}}, session=session)
        with pytest.raises(StoreUnavailableError, match='other writers'):
            await store.append_event(an_event())
        session.abort_transaction()
    assert len(await store.list_events(run_id='run-1')) == 1


# --- content ---


class _Inserted(CommandListener):
    """Counts the documents that are sent, by collection."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == 'update':
            name = event.command['update']
            sent = sum(bool(update.get('upsert')) for update in event.command['updates'])
            self.counts[name] = self.counts.get(name, 0) + sent

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


async def test_save_sends_what_is_new_also_after_a_restart(mongo: str, database: str, store: MongoStepStore) -> None:
    history = turns(120)
    await store.save_snapshot(a_snapshot(history[:101]))
    inserted = _Inserted()
    async with AsyncMongoClient[Any](mongo, event_listeners=[inserted]) as client:
        restarted = MongoStepStore(client, database=database)
        await restarted.save_snapshot(a_snapshot(history[:103]))
        assert (inserted.counts['messages'], inserted.counts['history_links']) == (2, 2)
        await restarted.save_snapshot(a_snapshot(history[:106]))
        assert inserted.counts['history_links'] <= 6
        await restarted.save_snapshot(a_snapshot(history[:50]))
        assert inserted.counts['history_links'] <= 6
        read = await restarted.list_snapshots(run_id='run-1')
    assert [len(snapshot.messages) for snapshot in read] == [101, 103, 106, 50]
    assert read[2].messages == history[:106]


async def test_content_that_another_writer_stores_at_the_same_time_is_no_conflict(
    store: MongoStepStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk_write, beaten = AsyncCollection.bulk_write, set[str]()

    async def beaten_once(self: Any, operations: Any, **options: Any) -> Any:
        # A server answers so when two upserts of one document meet.
        if self.name in ('messages', 'history_links') and self.name not in beaten:
            beaten.add(self.name)
            await bulk_write(self, operations[:2], **options)
            raise BulkWriteError({'writeErrors': [{'index': 2, 'code': 11000}], 'writeConcernErrors': []})
        return await bulk_write(self, operations, **options)

    monkeypatch.setattr(AsyncCollection, 'bulk_write', beaten_once)
    await store.save_snapshot(a_snapshot(turns(6)))
    assert beaten == {'messages', 'history_links'}
    assert await store.latest_snapshot(run_id='run-1') == a_snapshot(turns(6))


async def test_content_that_cannot_be_written_is_told(store: MongoStepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any, operations: Any, **options: Any) -> Any:
        raise BulkWriteError({'writeErrors': [{'index': 0, 'code': 121}], 'writeConcernErrors': []})

    monkeypatch.setattr(AsyncCollection, 'bulk_write', fail)
    with pytest.raises(StoreError):
        await store.save_snapshot(a_snapshot(turns(6)))


async def test_snapshot_that_a_server_cannot_read_from_yet_is_unavailable(
    store: MongoStepStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OperationFailure('Unable to read from a snapshot due to pending collection catalog changes', 246)

    await store.register_run(a_run())
    monkeypatch.setattr(AsyncCollection, 'find', fail)
    with pytest.raises(StoreUnavailableError):
        await store.list_runs()


async def test_large_values_of_effects_and_responses_read_back(store: MongoStepStore) -> None:
    value = bytes(range(256)) * 80_000
    await store.commit([an_end(value=value), a_response(body=value[1:])])
    assert await store.list_tool_effects(run_id='run-1') == [an_end(value=value)]
    await store.commit([an_end(value=value)])
    response = await store.get_model_response(run_id='run-1', key='request-1')
    assert response == a_response(body=value[1:])


async def test_text_that_no_document_holds_is_refused_and_nothing_written(store: MongoStepStore) -> None:
    with pytest.raises(NotStorableError):
        await store.commit([a_run(), an_event(error='x' * (17 << 20))])
    assert await store.list_runs() == []
    await store.append_event(an_event())
    assert [event.seq for event in await store.list_events(run_id='run-1')] == [1]


@pytest.mark.parametrize('collection', ['history_links', 'messages'])
async def test_missing_content_is_told(store: MongoStepStore, contents: Any, collection: str) -> None:
    await store.save_snapshot(a_snapshot(turns(6)))
    contents[collection].delete_one({})
    with pytest.raises(StoreCorruptionError, match='missing'):
        await store.latest_snapshot(run_id='run-1')


async def test_damaged_message_is_told(store: MongoStepStore, contents: Any) -> None:
    await store.save_snapshot(a_snapshot(turns(6)))
    contents['messages'].update_one({}, {'$set': {'body': b'{}'}})
    with pytest.raises(StoreCorruptionError, match='damaged'):
        await store.latest_snapshot(run_id='run-1')


async def test_link_that_was_lost_is_written_again(store: MongoStepStore, contents: Any) -> None:
    await store.save_snapshot(a_snapshot(turns(6)))
    contents['history_links'].delete_many({})
    await store.save_snapshot(a_snapshot(turns(7)))
    assert await store.latest_snapshot(run_id='run-1') == a_snapshot(turns(7))


async def test_operator_in_a_filter_is_not_an_operator(store: MongoStepStore) -> None:
    operator: Any = {'$ne': None}
    await store.commit([a_run(conversation_id='c'), a_start()])
    for call in (
        store.get_run(run_id=operator),
        store.list_runs(conversation_id=operator),
        store.list_events(run_id=operator),
        store.get_tool_effect(run_id='run-1', tool_call_id=operator),
        store.get_model_response(run_id='run-1', key=operator),
    ):
        with pytest.raises(TypeError):
            await call
