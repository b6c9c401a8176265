"""Collection and deletion beside writers and readers that are stopped at the worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.history import stored_message
from harness_temporal.media import MediaStore
from harness_temporal.records import utc_now
from harness_temporal.stores import MongoStepStore
from harness_temporal.testing.samples import (
    a_response,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    asks,
    turns,
)

pymongo = pytest.importorskip('pymongo')
from pymongo import AsyncMongoClient, MongoClient  # noqa: E402

from harness_temporal.stores.mongo import writer as writer_module  # noqa: E402

pytestmark = pytest.mark.mongo
HOUR = timedelta(hours=1)
LARGE = bytes(range(256)) * 8192
CONTENT = ('history_links', 'messages', 'message_chunks')


@pytest.fixture
async def client(mongo: str) -> AsyncIterator[AsyncMongoClient[Any]]:
    async with AsyncMongoClient[Any](mongo) as client:
        yield client


@pytest.fixture
def store(client: AsyncMongoClient[Any], database: str) -> MongoStepStore:
    """Return the store that is stopped."""
    return MongoStepStore(client, database=database)


@pytest.fixture
def other(client: AsyncMongoClient[Any], database: str) -> MongoStepStore:
    """Return a store of another process."""
    return MongoStepStore(client, database=database)


@pytest.fixture
def contents(mongo: str, database: str) -> Iterator[Any]:
    """Yield the database, to look at and to make older."""
    with MongoClient[dict[str, Any]](mongo) as client:
        yield client[database]


@asynccontextmanager
async def stopped_at(
    store: MongoStepStore, method: str, collection: str | None, call: Any, *, ends: bool = True
) -> AsyncIterator[asyncio.Task[Any]]:
    """Run `call` up to the first request of that kind, then the block, then the rest of `call`.

    The request is held back; with `ends=False` the caller dies there.
    """
    database: Any = store._database
    request = getattr(database, method)
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def held_back(*args: Any, **kwargs: Any) -> Any:
        if not reached.is_set() and collection in (None, args[0]):
            reached.set()
            await go_on.wait()
        return await request(*args, **kwargs)

    setattr(database, method, held_back)
    task = asyncio.ensure_future(call)
    async with asyncio.timeout(30):
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert reached.is_set(), f'it ended without the request: {task!r}'
        yield task
        if ends:
            go_on.set()
        else:
            task.cancel()
        await asyncio.wait({task})
        delattr(database, method)


def make_old(contents: Any, age: timedelta = timedelta(days=2)) -> None:
    """Make everything that is stored as old as that."""
    then = int((utc_now() - age).timestamp() * 1_000_000)
    for collection in CONTENT:
        contents[collection].update_many({'touched_at': {'$exists': True}}, {'$set': {'touched_at': then}})
        contents[collection].update_many({'written_at': {'$exists': True}}, {'$set': {'written_at': then}})


async def leave_behind(store: MongoStepStore, contents: Any, *records: Any) -> None:
    """Store content that nothing has and that is old."""
    await store.commit(records)
    await store.delete_runs(['run-1'])
    make_old(contents)


def collecting(store: MongoStepStore) -> Any:
    """Collect as a caller does, with a grace."""
    return store.collect_messages(untouched_since=utc_now() - HOUR)


def left(contents: Any) -> dict[str, int]:
    """Return how many documents there are."""
    return {name: contents[name].count_documents({}) for name in CONTENT}


async def saved(store: MongoStepStore, run_id: str) -> list[Any]:
    """Return the messages of the run's snapshot."""
    [snapshot] = await store.list_snapshots(run_id=run_id)
    return snapshot.messages


# --- a collector that looked, and a writer ---


@pytest.mark.parametrize(
    'messages',
    [turns(5), [*turns(5), asks('more')], [*turns(3), asks('other')], turns(2)],
    ids=['the same', 'longer', 'branch', 'a part'],
)
@pytest.mark.parametrize('is_whole', [True, False])
async def test_history_that_is_used_again_after_the_collector_looked_stays(
    store: MongoStepStore, other: MongoStepStore, contents: Any, messages: list[Any], is_whole: bool
) -> None:
    await leave_behind(store, contents, a_snapshot(turns(5)))
    base_length = {'more': 5, 'other': 3}.get(messages[-1].parts[0].content, len(messages))
    extension = an_extension(messages, base_length=base_length, run_id='run-2')
    async with stopped_at(store, 'transact', None, collecting(store)) as collector:
        await other.commit([a_snapshot(messages, 'run-2') if is_whole else extension])
    assert await collector == 0
    assert await saved(other, 'run-2') == messages
    # What is under it is here, or a longer one could be built on nothing.
    await other.save_snapshot(a_snapshot([*messages, asks('yet more')], 'run-3'))
    assert await saved(other, 'run-3') == [*messages, asks('yet more')]


@pytest.mark.parametrize('chunk', [None, 50])
async def test_message_that_is_used_again_after_the_collector_looked_stays(
    store: MongoStepStore, other: MongoStepStore, contents: Any, monkeypatch: pytest.MonkeyPatch, chunk: int | None
) -> None:
    if chunk is not None:
        monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', chunk)
    await leave_behind(store, contents, a_snapshot(turns(2)))
    async with stopped_at(store, 'delete', 'messages', collecting(store)) as collector:
        # Under another link: the collector has deleted the ones that there were.
        await other.save_snapshot(a_snapshot(turns(2)[1:], 'run-2'))
    assert await collector == 2
    assert await saved(other, 'run-2') == turns(2)[1:]
    assert left(contents)['messages'] == 1
    assert (left(contents)['message_chunks'] > 0) is (chunk is not None)


async def test_values_that_are_used_again_after_the_collector_looked_stay(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    records = an_end(value=LARGE), a_response(body=LARGE[1:])
    await leave_behind(store, contents, *records)
    async with stopped_at(store, 'delete', 'messages', collecting(store)) as collector:
        await other.commit(records)
    assert await collector == 0
    assert [effect.value for effect in await other.list_tool_effects(run_id='run-1')] == [LARGE]
    assert await other.get_model_response(run_id='run-1', key='request-1') == records[1]


async def test_values_in_use_stay_however_old(store: MongoStepStore, contents: Any) -> None:
    await store.commit([an_end(value=LARGE), a_response(body=LARGE[1:]), a_snapshot(turns(2))])
    make_old(contents)
    assert await collecting(store) == 0
    assert left(contents) == {'history_links': 2, 'messages': 4, 'message_chunks': 0}


# --- a writer that looked, and a collector ---


async def test_writer_whose_base_is_collected_writes_all_of_it(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    await leave_behind(store, contents, a_snapshot(turns(3)))
    async with stopped_at(store, 'touch', 'history_links', store.save_snapshot(a_snapshot(turns(4)))) as writer:
        assert await collecting(other) == 3
    await writer
    assert await saved(other, 'run-1') == turns(4)


async def test_writer_whose_given_base_is_collected_is_told(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    await leave_behind(store, contents, a_snapshot(turns(3)))
    extension = store.commit([an_extension(turns(4), base_length=3), an_event()])
    async with stopped_at(store, 'touch', 'history_links', extension) as writer:
        assert await collecting(other) == 3
    with pytest.raises(HistoryMissingError):
        await writer
    assert left(contents) == {'history_links': 0, 'messages': 0, 'message_chunks': 0}
    assert await other.list_events(run_id='run-1') == []


@pytest.mark.parametrize(('method', 'collection'), [('put', 'messages'), ('put', 'history_links'), ('transact', None)])
async def test_what_a_writer_built_on_or_just_wrote_is_spared(
    store: MongoStepStore, other: MongoStepStore, contents: Any, method: str, collection: str | None
) -> None:
    await leave_behind(store, contents, a_snapshot(turns(3)))
    async with stopped_at(store, method, collection, store.save_snapshot(a_snapshot(turns(5)))) as writer:
        assert await collecting(other) == 0
    await writer
    assert await saved(other, 'run-1') == turns(5)


async def test_history_that_was_touched_lately_is_not_touched_again(store: MongoStepStore, contents: Any) -> None:
    await store.save_snapshot(a_snapshot(turns(3)))
    head = {'length': 3}
    for age, is_touched in ((timedelta(minutes=4), False), (timedelta(minutes=6), True)):
        make_old(contents, age)
        [before] = contents['history_links'].find(head)
        await store.save_snapshot(a_snapshot(turns(4)))
        [after] = contents['history_links'].find(head)
        assert (after['touched_at'] > before['touched_at']) is is_touched
        contents['history_links'].delete_one({'length': 4})


async def test_touch_does_not_make_older(store: MongoStepStore, contents: Any) -> None:
    await store.save_snapshot(a_snapshot(turns(2)))
    make_old(contents, -HOUR)
    links, messages = ([*contents[name].find(sort={'_id': 1})] for name in ('history_links', 'messages'))
    names = [link['_id'] for link in links]
    assert await store._database.touch('history_links', names, touched_at=1)
    # The same message under a new link.
    await store.save_snapshot(a_snapshot(turns(2)[1:]))
    assert [*contents['history_links'].find({'_id': {'$in': names}}, sort={'_id': 1})] == links
    assert [*contents['messages'].find(sort={'_id': 1})] == messages


async def test_history_goes_up_to_the_link_that_is_young(store: MongoStepStore, contents: Any) -> None:
    await leave_behind(store, contents, a_snapshot(turns(5)))
    young = {'$set': {'touched_at': int(utc_now().timestamp() * 1_000_000)}}
    contents['history_links'].update_one({'length': 3}, young)
    assert await collecting(store) == 2
    assert {link['length'] for link in contents['history_links'].find()} == {1, 2, 3}
    make_old(contents)
    assert await collecting(store) == 3


async def test_old_link_that_another_history_goes_through_stays(store: MongoStepStore, contents: Any) -> None:
    await store.save_snapshot(a_snapshot([*turns(3), asks('other')], 'run-2'))
    await leave_behind(store, contents, a_snapshot(turns(5)))
    assert await collecting(store) == 2
    assert await saved(store, 'run-2') == [*turns(3), asks('other')]


# --- what is left ---


@pytest.mark.parametrize('chunk', [None, 50])
@pytest.mark.parametrize(('method', 'collection'), [('put', 'messages'), ('put', 'history_links'), ('transact', None)])
async def test_what_a_dead_writer_left_is_collected_when_it_is_old(
    store: MongoStepStore,
    other: MongoStepStore,
    contents: Any,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    collection: str | None,
    chunk: int | None,
) -> None:
    if chunk is not None:
        monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', chunk)
    await other.save_snapshot(a_snapshot(turns(2), 'run-2'))
    kept = left(contents)
    dying = store.commit([a_snapshot(turns(5)), an_end(value=LARGE[:1_100_000] if chunk is None else b'"ok"')])
    async with stopped_at(store, method, collection, dying, ends=False):
        pass
    written = left(contents)
    assert written != kept or (chunk is None and (method, collection) == ('put', 'messages'))
    await collecting(other)
    assert left(contents) == written
    make_old(contents)
    assert await collecting(other) == written['history_links'] - kept['history_links']
    assert left(contents) == kept
    assert await saved(other, 'run-2') == turns(2)


@pytest.mark.parametrize(('method', 'collection'), [('put', 'messages'), ('put', 'history_links'), ('transact', None)])
async def test_what_a_dead_writer_left_can_be_built_on(
    store: MongoStepStore, other: MongoStepStore, method: str, collection: str | None
) -> None:
    async with stopped_at(store, method, collection, store.save_snapshot(a_snapshot(turns(5))), ends=False):
        pass
    await other.save_snapshot(a_snapshot(turns(6)))
    assert await saved(other, 'run-1') == turns(6)


async def test_what_a_writer_left_that_died_among_the_links_can_be_built_on(
    store: MongoStepStore, other: MongoStepStore
) -> None:
    put: Any = store._database.put

    async def put_some(collection: str, documents: Any, *, touched_at: int) -> None:
        await put(collection, [*documents][:3] if collection == 'history_links' else documents, touched_at=touched_at)

    store._database.put = put_some  # type: ignore[method-assign]
    async with stopped_at(store, 'transact', None, store.save_snapshot(a_snapshot(turns(5))), ends=False):
        pass
    await other.save_snapshot(a_snapshot(turns(6)))
    assert await saved(other, 'run-1') == turns(6)


async def test_collector_that_dies_leaves_what_the_next_one_collects(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    await leave_behind(store, contents, a_snapshot(turns(300)))
    async with stopped_at(store, 'delete', 'messages', collecting(store), ends=False):
        pass
    assert left(contents)['history_links'] == 0
    assert left(contents)['messages'] == 300
    assert await collecting(other) == 0
    assert left(contents)['messages'] == 0


async def test_collectors_at_the_same_time_count_each_link_once(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    await store.commit([a_snapshot([*turns(4), asks(f'{number}')]) for number in range(20)])
    await leave_behind(store, contents, a_snapshot(turns(30)))
    counts = await asyncio.gather(collecting(store), collecting(other))
    assert sum(counts) + await collecting(other) == 20 + 30
    assert left(contents) == {'history_links': 0, 'messages': 0, 'message_chunks': 0}


# --- deleted runs ---


async def test_writer_notices_that_its_run_was_deleted(store: MongoStepStore, other: MongoStepStore) -> None:
    await store.commit([a_start(), an_event(idempotency_key='key')])
    batch = [an_end(), an_event(idempotency_key='key'), an_event()]
    async with stopped_at(store, 'transact', None, store.commit(batch)) as writer:
        assert await other.delete_runs(['run-1'])
    await writer
    assert [effect.seq for effect in await other.list_tool_effects(run_id='run-1')] == [1]
    assert [event.seq for event in await other.list_events(run_id='run-1')] == [2, 3]


async def test_writer_notices_that_its_run_was_deleted_and_began_anew(
    store: MongoStepStore, other: MongoStepStore
) -> None:
    await store.commit([an_event(), an_event(), an_event(idempotency_key='key')])
    batch = [an_event(idempotency_key='key'), an_event()]
    async with stopped_at(store, 'transact', None, store.commit(batch)) as writer:
        assert await other.delete_runs(['run-1'])
        # As many commits as before: only a drawn version tells the two runs apart.
        await other.append_event(an_event())
    await writer
    assert [event.seq for event in await other.list_events(run_id='run-1')] == [1, 2, 3]


async def test_writer_takes_nothing_from_a_run_that_came_and_went(store: MongoStepStore, other: MongoStepStore) -> None:
    named: Any = store._database.named

    async def then_it_begins(collection: str, *args: Any, **kwargs: Any) -> Any:
        found = await named(collection, *args, **kwargs)
        if collection == 'counters' and not found:
            await other.commit([a_start(), an_event()])
        return found

    store._database.named = then_it_begins  # type: ignore[method-assign]
    async with stopped_at(store, 'transact', None, store.commit([an_event(), an_end()])) as writer:
        await other.delete_runs(['run-1'])
        store._database.named = named  # type: ignore[method-assign]
    await writer
    [effect] = await other.list_tool_effects(run_id='run-1')
    [event] = await other.list_events(run_id='run-1')
    assert (effect.seq, event.seq) == (1, 2)


async def test_commit_waits_for_a_delete_that_looked(
    store: MongoStepStore, other: MongoStepStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append_event(an_event(timestamp=utc_now() - 9 * HOUR))
    is_active: Any = writer_module.was_active
    commits: list[asyncio.Future[None]] = []

    async def then_a_commit_begins(*args: Any) -> bool:
        found = await is_active(*args)
        commits.append(asyncio.ensure_future(other.append_event(an_event(timestamp=utc_now()))))
        await asyncio.wait(commits, timeout=0.3)
        assert not commits[0].done()
        return found

    monkeypatch.setattr(writer_module, 'was_active', then_a_commit_begins)
    assert await store.delete_runs(['run-1'], idle_since=utc_now() - HOUR)
    await commits[0]
    assert [event.seq for event in await other.list_events(run_id='run-1')] == [1]


async def test_commit_before_the_delete_spares_the_run(store: MongoStepStore, other: MongoStepStore) -> None:
    await store.append_event(an_event(timestamp=utc_now() - 9 * HOUR))
    deletion = store.delete_runs(['run-1'], idle_since=utc_now() - HOUR)
    async with stopped_at(store, 'transact', None, deletion) as deleting:
        await other.append_event(an_event(timestamp=utc_now()))
    assert not await deleting
    assert [event.seq for event in await other.list_events(run_id='run-1')] == [1, 2]


# --- readers ---


async def test_reader_whose_snapshot_is_deleted_and_collected_finds_none(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    for collection in ('history_links', 'messages'):
        await other.save_snapshot(a_snapshot(turns(5)))
        async with stopped_at(store, 'named', collection, store.latest_snapshot(run_id='run-1')) as reader:
            await other.delete_runs(['run-1'])
            make_old(contents)
            await collecting(other)
        assert await reader is None


async def test_reader_whose_snapshot_is_pruned_and_collected_finds_the_next(
    client: AsyncMongoClient[Any], database: str, store: MongoStepStore, contents: Any
) -> None:
    pruning = MongoStepStore(client, database=database, max_snapshots_per_run=1)
    await pruning.save_snapshot(a_snapshot([asks('old')]))
    make_old(contents)
    async with stopped_at(store, 'named', 'history_links', store.list_snapshots(run_id='run-1')) as reader:
        await pruning.save_snapshot(a_snapshot([asks('new')]))
        assert await collecting(pruning) == 1
    assert [snapshot.messages for snapshot in await reader] == [[asks('new')]]


async def test_reader_whose_values_are_deleted_and_collected_finds_none(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    for read, nothing in (
        (lambda: store.list_tool_effects(run_id='run-1'), []),
        (lambda: store.get_tool_effect(run_id='run-1', tool_call_id='call-1'), None),
        (lambda: store.get_model_response(run_id='run-1', key='request-1'), None),
    ):
        await other.commit([an_end(value=LARGE), a_response(body=LARGE[1:])])
        async with stopped_at(store, 'named', 'messages', read()) as reader:
            await other.delete_runs(['run-1'])
            make_old(contents)
            await collecting(other)
        assert await reader == nothing


async def test_writer_whose_effect_is_deleted_and_collected_while_it_reads_begins_anew(
    store: MongoStepStore, other: MongoStepStore, contents: Any
) -> None:
    await other.commit([an_end(value=LARGE)])
    async with stopped_at(store, 'named', 'messages', store.commit([a_start(), an_event()])) as writer:
        await other.delete_runs(['run-1'])
        make_old(contents)
        await collecting(other)
    await writer
    [effect] = await other.list_tool_effects(run_id='run-1')
    assert (effect.status, effect.seq) == ('started', 1)


# --- blobs ---


async def referenced(store: MongoStepStore) -> set[str]:
    """Return the digests of the blobs that are referred to."""
    return {digest async for digest in store.media_references()}


async def blobs(media: MediaStore | None) -> set[str]:
    """Return the digests of the blobs that there are."""
    return {blob.digest async for blob in media.blobs()}  # type: ignore[union-attr]


async def test_blobs_of_bodies_in_chunks_are_referred_to(
    store: MongoStepStore, other: MongoStepStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', 100)
    monkeypatch.setattr('harness_temporal.stores.mongo.plan._LARGEST_INSIDE', 100)
    text = 'a long text ' * 10_000
    for name, record in {
        'message': a_snapshot([asks(text)]),
        'value': an_end(value=f'"value {text}"'.encode()),
        'body': a_response(body=f'"body {text}"'.encode()),
    }.items():
        await store.commit([record])
        assert contents['messages'].count_documents({'external': True, 'chunks': {'$gt': 1}}) == 1, name
        assert await referenced(store) == await blobs(store.media_store), name
        async with stopped_at(store, 'named', 'message_chunks', referenced(store)) as reader:
            await other.delete_runs(['run-1'])
            make_old(contents)
            await collecting(other)
        assert await reader == set(), name
        for blob in await blobs(store.media_store):
            await store.media_store.delete(blob, untouched_since=utc_now() + HOUR)  # type: ignore[union-attr]


async def test_chunk_that_is_lost_is_told(
    store: MongoStepStore, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', 100)
    await store.save_snapshot(a_snapshot([asks('a long text ' * 10_000)]))
    contents['message_chunks'].delete_one({})
    with pytest.raises(StoreCorruptionError, match='missing'):
        await referenced(store)
    with pytest.raises(StoreCorruptionError, match='missing'):
        await store.latest_snapshot(run_id='run-1')


async def test_body_that_two_stores_keep_in_different_forms_reads_back(
    client: AsyncMongoClient[Any],
    database: str,
    store: MongoStepStore,
    contents: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', 100)
    message = asks('a long text ' * 10_000)
    inside = MongoStepStore(client, database=database, media_store=None)
    async with stopped_at(store, 'put', 'messages', store.save_snapshot(a_snapshot([message], 'run-2'))) as writer:
        await inside.save_snapshot(a_snapshot([message]))
    await writer
    assert await saved(store, 'run-1') == await saved(store, 'run-2') == [message]
    [document] = contents['messages'].find()
    make_old(contents)
    assert await collecting(store) == 0
    assert left(contents)['message_chunks'] == document['chunks']
    assert await saved(store, 'run-2') == [message]


def test_large_is_kept_like_a_message() -> None:
    # What the tests of values take for granted.
    assert len(LARGE) > 1 << 20
    assert stored_message(LARGE).digest != stored_message(LARGE[1:]).digest
