"""What only the PostgreSQL media store has: statements, locks, pools, a transaction for large blobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness_temporal.databases.postgres.sql import Statements
from harness_temporal.errors import (
    ConfigurationError,
    MediaCorruptionError,
    MediaNotFoundError,
    StoreError,
    StoreLoopError,
    StoreUnavailableError,
)
from harness_temporal.media import MediaContext, PostgresMediaStore, media_uri
from harness_temporal.media.blob import CHUNK, Blob
from harness_temporal.media.postgres import store as media_store
from harness_temporal.records import utc_now
from harness_temporal.stores.postgres import PostgresStepStore
from harness_temporal.testing.samples import an_event
from tests.conformance.opening import drop_schema
from tests.postgres_server import OpenPool, Sql
from tests.stores.test_postgres import POOLS

pytestmark = pytest.mark.postgres

SMALL = b'small'
LARGE = os.urandom(3 * CHUNK + 1)
BOTH = pytest.mark.parametrize('data', [SMALL, LARGE], ids=['small', 'large'])
HOUR = timedelta(hours=1)

Open = Callable[..., PostgresMediaStore]


@pytest.fixture
async def open_media(postgres: str, schema: str) -> AsyncIterator[Open]:
    """Open stores on the schema of the test: with a pool of their own, or on the one that is passed."""
    async with AsyncExitStack() as stack:

        def open_media(dsn: str = postgres, *, pool: Any = None, **settings: Any) -> PostgresMediaStore:
            media = PostgresMediaStore(None if pool else dsn, pool=pool, **{'schema': schema, **settings})
            stack.push_async_callback(media.aclose)
            return media

        yield open_media


async def rows_of(sql: Sql, table: str) -> int:
    [row] = await sql(f'SELECT count(*) AS rows FROM {table}')
    return row['rows']


async def until_someone_waits(sql: Sql, schema: str) -> None:
    waiting = f"SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}%'"
    async with asyncio.timeout(10):
        while not await sql(waiting):  # noqa: ASYNC110  # the server says nothing
            await asyncio.sleep(0.01)


@pytest.fixture
def at_piece(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have something done when a piece of a blob is about to be sent."""

    def at_piece(number: int, act: Callable[[], Awaitable[None]]) -> None:
        async def achunks(blob: Blob, size: int = CHUNK) -> AsyncIterator[bytes]:
            for index, chunk in enumerate(blob.chunks(size)):
                if index == number:
                    await act()
                yield chunk

        monkeypatch.setattr(Blob, 'achunks', achunks)

    return at_piece


# --- round trips ---


class Wire:
    """Passes bytes between clients and the server, and counts how often the server was done with what it was asked."""

    def __init__(self, dsn: str) -> None:
        self.round_trips = 0
        self._server = urlsplit(dsn)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        """Yield the DSN that leads through here."""
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._serve, '127.0.0.1', 0)
        user = f'{self._server.username}:{self._server.password or ""}'
        port = server.sockets[0].getsockname()[1]
        yield f'postgresql://{user}@127.0.0.1:{port}{self._server.path}?sslmode=disable'
        server.close()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        answers, questions = await asyncio.open_connection(self._server.hostname, self._server.port)

        async def ask() -> None:
            while data := await reader.read(65536):
                questions.write(data)
            questions.close()

        async def answer() -> None:
            while True:
                head = await answers.readexactly(5)
                self.round_trips += head[:1] == b'Z'  # ready for the next query
                writer.write(head + await answers.readexactly(int.from_bytes(head[1:], 'big') - 4))

        asking = asyncio.create_task(ask())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer()
        writer.close()
        await asking


async def test_what_is_asked_of_a_small_blob_is_one_round_trip(postgres: str, open_media: Open) -> None:
    wire = Wire(postgres)
    async with wire.opened() as dsn:
        media = open_media(dsn, max_pool_size=1)
        data = b'x' * CHUNK
        digest = media_uri(data)[-64:]

        async def use() -> list[int]:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: media.put(data, context=MediaContext(metadata={'a': 'b'})),
                lambda: media.put(data),
                lambda: media.get(media_uri(data)),
                lambda: media.exists(media_uri(data)),
                lambda: media.get_metadata(media_uri(data)),
                lambda: media.delete(digest, untouched_since=utc_now() + HOUR),
            ]
            counts: list[int] = []
            for call in calls:
                before = wire.round_trips
                await call()
                counts.append(wire.round_trips - before)
            return counts

        # The first use of each statement on a connection prepares it.
        await use()
        assert await use() == [1] * 6
        await media.aclose()


async def test_large_blob_that_is_there_is_touched_in_one_round_trip(postgres: str, open_media: Open) -> None:
    wire = Wire(postgres)
    async with wire.opened() as dsn:
        media = open_media(dsn, max_pool_size=1)
        await media.put(LARGE)
        before = wire.round_trips
        await media.put(LARGE)
        assert wire.round_trips - before == 1
        await media.aclose()


# --- puts and deletes of one blob at once ---


@BOTH
async def test_blob_that_is_touched_while_it_is_being_deleted_stays(
    open_media: Open, open_pool: OpenPool, sql: Sql, schema: str, data: bytes
) -> None:
    media = open_media()
    uri = await media.put(data)
    sweep = utc_now() + timedelta(milliseconds=1)
    await sql("UPDATE media SET touched_at = touched_at - interval '1 hour'")
    queries = Statements(schema, 'harness_temporal.media.postgres').queries
    pool = await open_pool(max_size=1)
    async with pool.acquire() as connection, connection.transaction():
        assert await connection.fetch(queries['touch'], bytes.fromhex(uri[-64:]))
        deletion = asyncio.create_task(media.delete(uri[-64:], untouched_since=sweep - HOUR / 2))
        await until_someone_waits(sql, schema)
    assert await deletion is False
    assert await media.get(uri) == data


@BOTH
async def test_put_that_meets_a_deletion_stores_the_blob_anew(
    open_media: Open, open_pool: OpenPool, sql: Sql, schema: str, data: bytes
) -> None:
    media = open_media()
    uri = await media.put(data, context=MediaContext(metadata={'which': 'first'}))
    queries = Statements(schema, 'harness_temporal.media.postgres').queries
    pool = await open_pool(max_size=1)
    async with pool.acquire() as connection, connection.transaction():
        assert await connection.fetch(queries['delete'], bytes.fromhex(uri[-64:]), utc_now() + HOUR)
        put = asyncio.create_task(media.put(data, context=MediaContext(metadata={'which': 'second'})))
        await until_someone_waits(sql, schema)
    assert await put == uri
    assert await media.get(uri) == data
    assert await media.get_metadata(uri) == {'which': 'second'}


@BOTH
async def test_writers_readers_and_sweepers_of_one_blob_never_see_it_in_part(
    open_media: Open, sql: Sql, data: bytes
) -> None:
    stores = [open_media() for _ in range(3)]
    uri, was_read, deletions = media_uri(data), asyncio.Event(), 0

    async def write(media: PostgresMediaStore) -> None:
        while deletions < 10:
            assert await media.put(data) == uri

    async def read(media: PostgresMediaStore) -> None:
        while deletions < 10:
            with suppress(MediaNotFoundError):
                assert await media.get(uri) == data
                was_read.set()

    async def sweep(media: PostgresMediaStore) -> None:
        nonlocal deletions
        while deletions < 10:
            # Between two deletions one reader gets to the end; the others are somewhere.
            await was_read.wait()
            was_read.clear()
            deletions += await media.delete(uri[-64:], untouched_since=utc_now() + HOUR)

    async with asyncio.timeout(60):
        await asyncio.gather(*[job(media) for job, media in product((write, read), stores)], sweep(open_media()))
    await stores[0].put(data)
    assert await stores[0].get(uri) == data
    assert await rows_of(sql, 'media_chunks') == -(-len(data) // CHUNK)
    assert await stores[0].delete(uri[-64:], untouched_since=utc_now() + HOUR)
    assert await rows_of(sql, 'media_chunks') == 0


@BOTH
async def test_writers_of_one_blob_at_once_store_it_once(open_media: Open, sql: Sql, data: bytes) -> None:
    uris = await asyncio.gather(*[open_media().put(data) for _ in range(8)])
    assert set(uris) == {media_uri(data)}
    assert await rows_of(sql, 'media') == 1
    assert await rows_of(sql, 'media_chunks') == -(-len(data) // CHUNK)
    assert await open_media().get(uris[0]) == data


async def test_blob_whose_writer_fell_silent_can_be_put_by_another(
    open_media: Open, sql: Sql, schema: str, at_piece: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_store, '_SILENCE', 200)
    silent, other = open_media(), open_media()
    fell_silent, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        if not fell_silent.is_set():
            fell_silent.set()
            await go_on.wait()

    at_piece(1, wait)
    first = asyncio.create_task(silent.put(LARGE))
    await fell_silent.wait()
    async with asyncio.timeout(20):
        assert await other.put(LARGE) == media_uri(LARGE)
    go_on.set()
    # It has lost its transaction, and finds the blob when it begins again.
    assert await first == media_uri(LARGE)
    assert await silent.get(media_uri(LARGE)) == LARGE


async def test_blob_that_took_long_to_send_counts_as_put_when_it_is_there(
    open_media: Open, sql: Sql, at_piece: Callable[..., None]
) -> None:
    moments: list[Any] = []

    async def note() -> None:
        [row] = await sql('SELECT clock_timestamp() AS now')
        moments.append(row['now'])

    at_piece(3, note)
    media = open_media()
    await media.put(LARGE)
    [blob] = [blob async for blob in media.blobs()]
    assert blob.touched_at > moments[0]


# --- what breaks ---


@pytest.mark.parametrize('piece', range(4))
async def test_put_that_is_cancelled_leaves_no_row_and_no_connection(
    open_media: Open, open_pool: OpenPool, sql: Sql, at_piece: Callable[..., None], piece: int
) -> None:
    pool = await open_pool(max_size=1)
    media = open_media(pool=pool, acquire_timeout=10)
    await media.put(SMALL)

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    at_piece(piece, cancel)
    task = asyncio.create_task(media.put(LARGE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await media.exists(media_uri(LARGE))
    assert pool.get_size() == pool.get_idle_size() == 1
    assert await rows_of(sql, 'media_chunks') == await rows_of(sql, 'media') == 1
    [row] = await sql("SELECT count(*) AS open FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
    assert row['open'] == 0


async def test_puts_that_are_cancelled_anywhere_leave_the_stores_own_pool_usable(open_media: Open, sql: Sql) -> None:
    media = open_media(max_pool_size=1, acquire_timeout=10)
    for attempt in range(40):
        task = asyncio.create_task(media.put(LARGE))
        await asyncio.wait([task], timeout=attempt / 2_000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if await media.exists(media_uri(LARGE)):
            assert await media.get(media_uri(LARGE)) == LARGE
            assert await media.delete(media_uri(LARGE)[-64:], untouched_since=utc_now() + HOUR)
        assert await rows_of(sql, 'media_chunks') == 0
    assert await media.get(await media.put(LARGE)) == LARGE


async def test_blob_that_cannot_be_read_leaves_nothing(
    open_media: Open, sql: Sql, at_piece: Callable[..., None]
) -> None:
    async def fail() -> None:
        raise ValueError('the file is closed')

    media = open_media(max_pool_size=1)
    at_piece(2, fail)
    with pytest.raises(ValueError, match='the file is closed'):
        await media.put(LARGE)
    assert not await media.exists(media_uri(LARGE))
    assert await rows_of(sql, 'media_chunks') == 0


async def test_put_whose_connection_breaks_is_begun_again(
    open_media: Open, sql: Sql, schema: str, at_piece: Callable[..., None]
) -> None:
    broken: list[int] = []

    async def break_connection() -> None:
        if not broken:
            who = f"query LIKE '%{schema}%' AND pid <> pg_backend_pid()"
            broken.extend(row[0] for row in await sql(f'SELECT pid FROM pg_stat_activity WHERE {who}'))
            await sql('SELECT pg_terminate_backend(pid, 5000) FROM unnest($1::int[]) AS pid', broken)

    at_piece(2, break_connection)
    media = open_media(max_pool_size=1)
    assert await media.get(await media.put(LARGE)) == LARGE
    assert broken


@pytest.mark.parametrize(
    ('damage', 'reason'),
    [
        ("UPDATE media_chunks SET data = data || 'x'::bytea WHERE index = {last}", 'digest'),
        ('UPDATE media_chunks SET data = substr(data, 2) WHERE index = {last}', 'piece .* is missing'),
        ('UPDATE media_chunks SET data = set_byte(data, 0, 255 - get_byte(data, 0)) WHERE index = {last}', 'digest'),
        ('DELETE FROM media_chunks WHERE index = {last}', 'piece {last} is missing'),
        ('UPDATE media SET size = size + 1', 'piece .* is missing'),
        ("UPDATE media SET metadata = '[]'", 'metadata'),
    ],
    ids=['longer', 'shorter', 'other', 'missing', 'size', 'metadata'],
)
@pytest.mark.parametrize('data', [SMALL, LARGE[:-1]], ids=['small', 'large'])
async def test_damaged_blob_is_not_given_out(open_media: Open, sql: Sql, data: bytes, damage: str, reason: str) -> None:
    media = open_media()
    uri = await media.put(data)
    last = (len(data) - 1) // CHUNK
    await sql(damage.format(last=last))
    if 'metadata' in reason:
        with pytest.raises(MediaCorruptionError, match=reason):
            await media.get_metadata(uri)
    else:
        with pytest.raises(MediaCorruptionError, match=reason.format(last=last)) as caught:
            await media.get(uri)
        assert caught.value.uri == uri


async def test_blob_that_is_deleted_under_its_reader_is_not_found(open_media: Open) -> None:
    media = open_media()
    uri = await media.put(LARGE)
    with pytest.raises(MediaNotFoundError):
        async with media.open(uri) as pieces:
            async for _ in pieces:
                await media.delete(uri[-64:], untouched_since=utc_now() + HOUR)


@BOTH
async def test_pieces_that_a_deletion_by_hand_left_are_no_obstacle(open_media: Open, sql: Sql, data: bytes) -> None:
    media = open_media()
    await media.put(data)
    await sql('DELETE FROM media')
    assert not await media.exists(media_uri(data))
    assert await media.get(await media.put(data)) == data


# --- pools ---


@BOTH
@pytest.mark.parametrize('settings', POOLS.values(), ids=POOLS)
async def test_given_pool_gives_the_same_as_a_pool_of_the_stores_own(
    open_media: Open, open_pool: OpenPool, settings: dict[str, Any], data: bytes
) -> None:
    given, own = open_media(pool=await open_pool(**settings)), open_media()
    context = MediaContext(media_type='a\x00\ud800', metadata={'nul \x00': '\ud800'})
    for writer, reader in ((given, own), (own, given)):
        uris = await asyncio.gather(*[writer.put(data, context=context) for _ in range(4)])
        assert await reader.get(uris[0]) == data
        assert await reader.get_metadata(uris[0]) == {'nul \x00': '\ud800'}
        blobs = [[blob async for blob in media.blobs()] for media in (given, own)]
        assert blobs[0] == blobs[1]
        assert [blob.size for blob in blobs[0]] == [len(data)]
        assert await reader.delete(uris[0][-64:], untouched_since=utc_now() + HOUR)


@BOTH
async def test_store_leaves_no_state_in_a_session(open_media: Open, open_pool: OpenPool, data: bytes) -> None:
    """So that a transaction pooler may be in between, which hands the session to somebody else."""

    async def no_reset(connection: Any) -> None: ...

    pool = await open_pool(max_size=1, statement_cache_size=0, reset=no_reset)
    state = """
        SELECT 'statement ' || name AS item FROM pg_prepared_statements
        UNION ALL SELECT 'setting ' || name || setting FROM pg_settings WHERE source = 'session'
        UNION ALL SELECT 'lock ' || locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
        UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't'
    """
    before = await pool.fetch(state)
    media = open_media(pool=pool)
    for _ in range(2):
        assert await media.get(await media.put(data)) == data
    assert await pool.fetch(state) == before


@BOTH
async def test_no_connection_in_time_is_unavailability_with_the_bounds(
    open_media: Open, open_pool: OpenPool, data: bytes
) -> None:
    pool = await open_pool(max_size=1)
    media = open_media(pool=pool, acquire_timeout=0.05)
    await media.exists(media_uri(data))
    async with pool.acquire():
        with pytest.raises(StoreUnavailableError, match=r'no connection within 0\.05 seconds: the 1 of the pool'):
            await media.put(data)
    assert await media.get(await media.put(data)) == data


async def test_given_pool_is_not_closed(open_media: Open, open_pool: OpenPool) -> None:
    pool = await open_pool()
    media = open_media(pool=pool)
    await media.put(SMALL)
    await media.aclose()
    with pytest.raises(StoreError, match='closed'):
        await media.put(SMALL)
    assert await open_media(pool=pool).get(media_uri(SMALL)) == SMALL


@BOTH
async def test_step_store_and_media_store_share_one_connection(postgres: str, schema: str, data: bytes) -> None:
    steps = PostgresStepStore(postgres, schema=schema, max_pool_size=1, acquire_timeout=10)
    media = PostgresMediaStore(steps._connections)
    uris, _ = await asyncio.gather(
        asyncio.gather(*[media.put(data) for _ in range(5)]),
        asyncio.gather(*[steps.append_event(an_event()) for _ in range(5)]),
    )
    assert await media.get(uris[0]) == data
    await media.aclose()
    assert len(await steps.list_events(run_id='run-1')) == 5
    await steps.aclose()
    with pytest.raises(StoreError, match='closed'):
        await media.get(uris[0])
    own = PostgresMediaStore(postgres, schema=schema)
    assert await own.get(uris[0]) == data
    await own.aclose()


async def test_settings_that_do_not_go_together_are_refused(postgres: str, schema: str) -> None:
    connections = PostgresStepStore(postgres, schema=schema)._connections
    PostgresMediaStore(connections, schema=schema)
    with pytest.raises(ConfigurationError, match='`schema`'):
        PostgresMediaStore(connections, schema='another')
    with pytest.raises(ConfigurationError, match='`pool`'):
        PostgresMediaStore(connections, pool=object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match='either `dsn` or `pool`'):
        PostgresMediaStore()
    with pytest.raises(ConfigurationError, match='`schema`'):
        PostgresMediaStore(postgres, schema='x"y')


async def test_schema_name_may_be_a_word_of_sql(postgres: str, open_media: Open) -> None:
    media = open_media(schema='select')
    try:
        assert await media.get(await media.put(LARGE)) == LARGE
    finally:
        await media.aclose()
        await drop_schema(postgres, '"select"')


async def test_second_event_loop_is_told_what_to_do(open_media: Open) -> None:
    media = open_media()
    await media.put(SMALL)
    for call in (media.put(LARGE), media.get(media_uri(SMALL)), media.aclose()):
        with pytest.raises(StoreLoopError, match='Make one store'):
            await asyncio.to_thread(asyncio.run, call)
    assert await media.get(media_uri(SMALL)) == SMALL


# --- queries ---

DIGEST = bytes.fromhex(media_uri(b'5')[-64:])
QUERIES: dict[str, Callable[[], tuple[object, ...]]] = {
    'put_small': lambda: (DIGEST, 5, None, b'{}', b''),
    'touch': lambda: (DIGEST,),
    'begin_large': lambda: (DIGEST, 5, None, b'{}', '60000'),
    'put_chunk': lambda: (DIGEST, 0, b''),
    'read_chunk': lambda: (DIGEST, 0),
    'about': lambda: (DIGEST,),
    'list_blobs': lambda: (b'', 500),
    'delete': lambda: (DIGEST, utc_now() + HOUR),
}
FILL = """
INSERT INTO media SELECT sha256(i::text::bytea), 5, NULL, '{}', now() FROM generate_series(1, 20000) AS i;
INSERT INTO media_chunks
  SELECT sha256(i::text::bytea), piece, '' FROM generate_series(1, 20000) AS i, generate_series(0, 2) AS piece;
"""


@pytest.mark.parametrize('analyzed', [False, True], ids=['not analyzed', 'analyzed'])
async def test_no_query_scans_a_table(open_media: Open, open_pool: OpenPool, schema: str, *, analyzed: bool) -> None:
    queries = Statements(schema, 'harness_temporal.media.postgres').queries
    assert set(QUERIES) == set(queries) - set(Statements(schema, 'harness_temporal.databases.postgres').queries)
    await open_media().exists(media_uri(SMALL))
    pool = await open_pool(server_settings={'search_path': schema})
    async with pool.acquire() as connection:
        await connection.execute(FILL)
        if analyzed:
            await connection.execute('ANALYZE media, media_chunks')
        for mode, (name, arguments) in product(('force_custom_plan', 'force_generic_plan'), QUERIES.items()):
            await connection.execute(f'SET plan_cache_mode = {mode}')
            rows = await connection.fetch(f'EXPLAIN {queries[name]}', *arguments())
            plan = '\n'.join([f'{name}, {mode}:', *[row[0] for row in rows]])
            assert 'Seq Scan' not in plan, plan
