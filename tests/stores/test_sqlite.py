"""What only the SQLite store has: a file that processes share, and a connection that belongs to somebody else."""

# ruff: noqa: ASYNC240 - a test may block its own event loop
from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness_temporal.databases import sqlite as sqlite_database
from harness_temporal.errors import (
    ConfigurationError,
    DuplicateRunError,
    StoreCorruptionError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)
from harness_temporal.records import Record
from harness_temporal.stores.sqlite import SqliteStepStore
from harness_temporal.testing.samples import (
    TEXTS,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    turns,
)
from tests.forks import FORKS, import_before_forks

PROCESSES = 8
FILES = 10
import_before_forks(__name__)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / 'runs.db'


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a tenth of a second for locks: what a store gets done then, it did without waiting."""
    monkeypatch.setattr(sqlite_database, '_BUSY_SECONDS', 0.1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Every connection that is opened from here on."""
    connections: list[sqlite3.Connection] = []
    spy_on_connections(monkeypatch, connections.append)
    return connections


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        yield connection


def spy_on_connections(monkeypatch: pytest.MonkeyPatch, see: Callable[[sqlite3.Connection], object]) -> None:
    connect = sqlite3.connect

    def spy(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        see(connection)
        return connection

    monkeypatch.setattr(sqlite3, 'connect', spy)


def lock(database: Path) -> closing[sqlite3.Connection]:
    """Hold the lock that a writer needs, until the connection is closed."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=0, check_same_thread=False)
    connection.execute('BEGIN IMMEDIATE')
    return closing(connection)


def a_step(number: int) -> list[Record]:
    """Make what one step of a run writes: two events around a tool's start and a longer history."""
    return [
        an_event(step_index=number),
        a_start(tool_call_id=f'call-{number}', call_key=None),
        an_extension(turns(number), base_length=number - 1, step_index=number),
        an_event(step_index=number),
    ]


async def check_whole_steps(store: SqliteStepStore) -> int:
    """Check that the run holds steps 1 to n and no part of another; return n."""
    steps = [event.step_index for event in await store.list_events(run_id='run-1')]
    assert steps == sorted([*range(1, len(steps) // 2 + 1)] * 2)
    effects = await store.list_tool_effects(run_id='run-1')
    snapshots = await store.list_snapshots(run_id='run-1')
    assert [effect.tool_call_id for effect in effects] == [f'call-{number}' for number in dict.fromkeys(steps)]
    assert [snapshot.step_index for snapshot in snapshots] == list(dict.fromkeys(steps))
    assert all(snapshot.messages == turns(snapshot.step_index) for snapshot in snapshots)
    return len(effects)


# --- many processes ---


def _write_to_all_files(folder: Path, number: int, barrier: Barrier) -> None:
    async def write() -> None:
        for file in range(FILES):
            barrier.wait(30)
            store = SqliteStepStore(folder / f'{file}.db')
            await store.commit(
                [a_run(f'run-{number}'), a_start('shared', call_key=f'{number}'), a_snapshot(turns(4), 'shared')]
            )
            await store.append_event(an_event('shared', idempotency_key='once'))
            for step in range(3):
                await store.append_event(an_event('shared', step_index=step))
            await store.aclose()

    try:
        asyncio.run(write())
    except BaseException:
        barrier.abort()
        raise


async def test_many_processes_open_and_write_to_a_fresh_file_at_once(tmp_path: Path) -> None:
    barrier = FORKS.Barrier(PROCESSES)
    processes = [
        FORKS.Process(target=_write_to_all_files, args=(tmp_path, number, barrier)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    for file in range(FILES):
        store = SqliteStepStore(tmp_path / f'{file}.db')
        effects = await store.list_tool_effects(run_id='shared')
        events = await store.list_events(run_id='shared')
        snapshots = await store.list_snapshots(run_id='shared')
        assert len(await store.list_runs()) == len(effects) == len(snapshots) == PROCESSES
        assert len(events) == 3 * PROCESSES + 1
        numbers = sorted(record.seq or 0 for record in (*effects, *events, *snapshots))
        assert numbers == list(range(1, 5 * PROCESSES + 2))
        await store.aclose()


def _die_at_statement(database: Path, number: int) -> None:
    """Write a step, and be killed before its `number`-th statement."""
    opened: list[sqlite3.Connection] = []
    left = number

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def write() -> None:
        store = SqliteStepStore(database)
        await store.commit(a_step(1))
        opened[0].set_trace_callback(count)
        await store.commit(a_step(2))

    spy_on_connections(pytest.MonkeyPatch(), opened.append)
    asyncio.run(write())


async def test_writer_killed_at_any_statement_leaves_nothing_of_its_batch(tmp_path: Path) -> None:
    exit_code, statement = -signal.SIGKILL, 0
    while exit_code == -signal.SIGKILL:
        database = tmp_path / f'{statement}.db'
        writer = FORKS.Process(target=_die_at_statement, args=(database, statement))
        writer.start()
        writer.join(30)
        exit_code = writer.exitcode or 0
        store = SqliteStepStore(database)
        assert await check_whole_steps(store) == (1 if exit_code else 2)
        await store.append_event(an_event('run-2'))
        await store.aclose()
        statement += 1
    assert exit_code == 0
    assert statement > 10  # the batch has more statements than that


@pytest.mark.usefixtures('impatient')
async def test_long_reader_does_not_stop_a_writer(database: Path) -> None:
    store = SqliteStepStore(database)
    await store.commit([an_event(step_index=step) for step in range(100)])
    with closing(sqlite3.connect(database)) as reader:
        rows = reader.execute('SELECT seq FROM events')
        rows.fetchone()
        for _ in range(20):
            await store.append_event(an_event())
        await store.record_tool_effect(a_start())
        assert len(rows.fetchall()) == 99
    assert len(await store.list_events(run_id='run-1')) == 120
    await store.aclose()


# --- waiting, cancellation, event loops ---


@pytest.mark.usefixtures('impatient')
async def test_lock_held_beyond_the_bound_is_unavailability(database: Path) -> None:
    store = SqliteStepStore(database)
    await store.append_event(an_event())
    with lock(database), pytest.raises(StoreUnavailableError, match=r'runs\.db: database is locked'):
        await store.append_event(an_event())
    with lock(database):
        assert len(await store.list_events(run_id='run-1')) == 1
    await store.append_event(an_event())
    assert len(await store.list_events(run_id='run-1')) == 2
    await store.aclose()


@pytest.mark.usefixtures('impatient')
async def test_lock_on_a_new_file_held_beyond_the_bound_is_unavailability(database: Path) -> None:
    store = SqliteStepStore(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute('BEGIN EXCLUSIVE')
        with pytest.raises(StoreUnavailableError, match='locked'):
            await store.append_event(an_event())
    await store.append_event(an_event())
    await store.aclose()


async def test_lock_that_sqlite_does_not_wait_for_at_opening_is_waited_for(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 3

    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            nonlocal refusals
            if 'journal_mode' in sql and refusals:
                refusals -= 1
                error = sqlite3.OperationalError('database is locked')
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
                raise error
            return super().execute(sql, *parameters)

    monkeypatch.setattr(sqlite3, 'connect', partial(sqlite3.connect, factory=Refusing))
    store = SqliteStepStore(database)
    await store.append_event(an_event())
    assert refusals == 0
    await store.aclose()


async def test_event_loop_and_its_threads_are_free_while_a_lock_is_waited_for(
    database: Path, opened: list[sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_database, '_BUSY_SECONDS', 5.0)
    store = SqliteStepStore(database)
    await store.append_event(an_event())
    waiting = threading.Event()
    opened[0].set_trace_callback(lambda sql: waiting.set() if sql == 'BEGIN IMMEDIATE' else None)
    with lock(database):
        writes = [asyncio.create_task(store.append_event(an_event()))]
        assert await anyio.to_thread.run_sync(waiting.wait, 10)
        assert not writes[0].done()
        # More than the threads that anyio lends out.
        writes += [asyncio.create_task(store.append_event(an_event())) for _ in range(59)]
        for _ in range(100):
            await asyncio.sleep(0)
        async with asyncio.timeout(4):
            await anyio.to_thread.run_sync(os.getpid)
        assert not any(write.done() for write in writes)
    await asyncio.gather(*writes)
    assert [event.seq for event in await store.list_events(run_id='run-1')] == list(range(1, 62))
    await store.aclose()


async def test_cancellation_while_a_lock_is_waited_for_leaves_no_lock_and_no_transaction(
    database: Path, opened: list[sqlite3.Connection]
) -> None:
    store = SqliteStepStore(database)
    await store.append_event(an_event('run-2'))
    own, waiting = opened[0], threading.Event()
    own.set_trace_callback(lambda sql: waiting.set() if sql == 'BEGIN IMMEDIATE' else None)
    with lock(database):
        task = asyncio.create_task(store.commit(a_step(1)))
        assert await asyncio.to_thread(waiting.wait, 10)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await check_whole_steps(store) in (0, 1)
    assert not own.in_transaction
    with lock(database):
        pass
    await store.aclose()


async def test_cancellation_at_any_time_leaves_no_lock_and_no_transaction(
    database: Path, opened: list[sqlite3.Connection]
) -> None:
    store = SqliteStepStore(database)
    await store.append_event(an_event('run-2'))
    for attempt in range(100):
        batches = [[an_event('run-3', step_index=attempt)] * 2, *[[an_event('run-2')]] * 3]
        tasks = [asyncio.create_task(store.commit(batch)) for batch in batches]
        await asyncio.wait(tasks, timeout=attempt / 50_000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    steps = [event.step_index for event in await store.list_events(run_id='run-3')]
    assert steps[::2] == steps[1::2]
    assert 0 < len(steps) < 200
    assert not opened[0].in_transaction
    with lock(database):
        pass
    await store.aclose()


def test_store_serves_one_event_loop_after_another_and_many_at_once(database: Path) -> None:
    store = SqliteStepStore(database)

    async def write() -> None:
        await asyncio.gather(*[store.append_event(an_event()) for _ in range(10)])

    for _ in range(2):
        asyncio.run(write())
    threads = [threading.Thread(target=asyncio.run, args=(write(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    events = asyncio.run(store.list_events(run_id='run-1'))
    assert [event.seq for event in events] == list(range(1, 61))
    asyncio.run(store.aclose())


# --- a given connection ---


def test_connection_that_is_bound_to_its_thread_is_refused() -> None:
    with (
        closing(sqlite3.connect(':memory:')) as connection,
        pytest.raises(ConfigurationError, match='check_same_thread=False'),
    ):
        SqliteStepStore(connection=connection)


@pytest.mark.parametrize(
    'row_factory', [None, sqlite3.Row, lambda cursor, row: {'columns': len(row)}], ids=['none', 'Row', 'dict']
)
@pytest.mark.parametrize('text_factory', [str, bytes, lambda text: 7], ids=['str', 'bytes', 'seven'])
@pytest.mark.parametrize('isolation_level', [None, '', 'EXCLUSIVE'])
async def test_settings_of_a_given_connection_stay_and_do_not_matter(
    connection: sqlite3.Connection, row_factory: Any, text_factory: Any, isolation_level: str | None
) -> None:
    connection.row_factory = row_factory
    connection.text_factory = text_factory
    connection.isolation_level = isolation_level
    total = [a_run(metadata={'é': '\x00'}), an_event(error='😀'), a_snapshot(turns(3)), an_end(value=b'\x00\xff')]
    store = SqliteStepStore(connection=connection)
    await store.commit(total)
    assert [
        *await store.list_runs(),
        *await store.list_events(run_id='run-1'),
        *await store.list_snapshots(run_id='run-1'),
        *await store.list_tool_effects(run_id='run-1'),
    ] == total
    await store.aclose()
    assert connection.row_factory is row_factory
    assert connection.text_factory is text_factory
    assert connection.isolation_level == isolation_level
    assert not connection.in_transaction
    connection.row_factory = None
    assert connection.execute('PRAGMA journal_mode').fetchone()[0] is not None
    assert connection.execute('SELECT 1').fetchone() == (1,)


@pytest.mark.parametrize('encoding', ['UTF-16le', 'UTF-16be'])
async def test_text_reads_back_from_a_database_in_utf_16(connection: sqlite3.Connection, encoding: str) -> None:
    connection.execute(f"PRAGMA encoding = '{encoding}'")
    store = SqliteStepStore(connection=connection)
    events = [an_event(error=text, metadata={text: text}) for text in TEXTS.values()]
    await store.commit([a_run(conversation_id='é\x00'), *events])
    assert await store.list_events(run_id='run-1') == events
    assert await store.list_runs(conversation_id='é\x00') == [a_run(conversation_id='é\x00')]
    await store.aclose()


async def test_write_in_the_callers_transaction_is_rolled_back_with_it(connection: sqlite3.Connection) -> None:
    connection.execute('CREATE TABLE app (value)')
    store = SqliteStepStore(connection=connection)
    connection.execute('INSERT INTO app VALUES (1)')
    await store.append_event(an_event())
    assert len(await store.list_events(run_id='run-1')) == 1
    assert connection.in_transaction
    # The tables, too, were made in the transaction.
    connection.rollback()
    assert await store.list_events(run_id='run-1') == []
    assert not connection.in_transaction
    connection.execute('INSERT INTO app VALUES (2)')
    await store.append_event(an_event())
    connection.rollback()
    assert await store.list_events(run_id='run-1') == []
    assert connection.execute('SELECT * FROM app').fetchall() == []


async def test_write_in_the_callers_transaction_is_committed_with_it(
    connection: sqlite3.Connection, database: Path
) -> None:
    store = SqliteStepStore(connection=connection)
    await store.register_run(a_run())
    connection.execute('CREATE TABLE app (value)')
    connection.execute('INSERT INTO app VALUES (1)')
    await store.append_event(an_event())
    # A batch that is refused takes nothing of the caller's with it.
    with pytest.raises(DuplicateRunError):
        await store.commit([an_event(), a_run(registration_id='another')])
    assert connection.in_transaction
    with closing(sqlite3.connect(database)) as other:
        assert other.execute('SELECT count(*) FROM events').fetchone() == (0,)
        connection.commit()
        assert other.execute('SELECT count(*) FROM events').fetchone() == (1,)
        assert other.execute('SELECT value FROM app').fetchall() == [(1,)]


async def test_given_connection_is_not_closed(connection: sqlite3.Connection) -> None:
    store = SqliteStepStore(connection=connection)
    await store.append_event(an_event())
    await store.aclose()
    await store.aclose()
    assert connection.execute('SELECT count(*) FROM events').fetchone() == (1,)
    with pytest.raises(StoreError, match='closed') as caught:
        await store.get_run(run_id='run-1')
    assert type(caught.value) is StoreError


# --- opening ---


@pytest.mark.parametrize('both', [True, False])
def test_needs_either_a_database_or_a_connection(connection: sqlite3.Connection, *, both: bool) -> None:
    with pytest.raises(ConfigurationError, match='either `database` or `connection`'):
        SqliteStepStore(':memory:', connection=connection) if both else SqliteStepStore()


async def test_missing_folder_is_unavailability_that_names_the_path(tmp_path: Path) -> None:
    database = tmp_path / 'missing' / 'runs.db'
    store = SqliteStepStore(database)
    with pytest.raises(StoreUnavailableError) as caught:
        await store.append_event(an_event())
    assert str(database) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []
    database.parent.mkdir()
    await store.append_event(an_event())
    await store.aclose()


async def test_file_that_is_no_database_is_corruption_and_stays_as_it_is(database: Path) -> None:
    content = b'not a database at all ' * 100
    database.write_bytes(content)
    store = SqliteStepStore(database)
    with pytest.raises(StoreCorruptionError, match=r'runs\.db') as caught:
        await store.append_event(an_event())
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert database.read_bytes() == content
    await store.aclose()


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        ("INSERT INTO harness_temporal_schema VALUES ('steps', 2, x'00', 0)", 'newer release'),
        ("UPDATE harness_temporal_schema SET checksum = x'00'", 'not the one that made this database'),
    ],
    ids=['newer', 'edited'],
)
async def test_schema_of_another_release_is_refused(database: Path, damage: str, message: str) -> None:
    store = SqliteStepStore(database)
    await store.append_event(an_event())
    await store.aclose()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(damage)
    store = SqliteStepStore(database)
    for _ in range(2):
        with pytest.raises(StoreSchemaError, match=message):
            await store.append_event(an_event())
        with pytest.raises(StoreSchemaError, match=message):
            await store.list_events(run_id='run-1')
    await store.aclose()


async def test_migration_that_fails_half_way_leaves_nothing_and_the_next_opening_works(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = sqlite_database._migrations('steps')
    broken = {**released, 2: 'CREATE TABLE half (a);\nCREATE TABLE runs (b);\n'}
    store = SqliteStepStore(database)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_database, '_migrations', lambda part: broken)
        with pytest.raises(StoreSchemaError, match='migration 2'):
            await store.append_event(an_event())
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute('SELECT name FROM sqlite_master').fetchall() == []
    await store.append_event(an_event())
    await store.aclose()


async def test_tables_of_an_application_with_the_same_name_are_left_alone(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute('CREATE TABLE events (mine)')
        store = SqliteStepStore(database)
        with pytest.raises(StoreSchemaError, match='already exists'):
            await store.append_event(an_event())
        assert connection.execute('SELECT name FROM sqlite_master').fetchall() == [('events',)]
    await store.aclose()


async def test_new_file_and_its_side_files_are_readable_by_their_owner_only(database: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStepStore(database)
        assert not database.exists()
        await store.append_event(an_event())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in database.parent.iterdir()}
        await store.aclose()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(['runs.db', 'runs.db-wal', 'runs.db-shm'], 0o600)


async def test_tool_effects_are_flushed_to_disk_and_other_records_are_not(
    database: Path, opened: list[sqlite3.Connection]
) -> None:
    store = SqliteStepStore(database)
    levels: list[int] = []
    for batch in ([an_event()], [a_start()], [an_event(), an_end()], [a_snapshot(turns(2))]):
        await store.commit(batch)
        # It cannot be changed within a transaction, so this is what the commit had.
        levels.append(opened[0].execute('PRAGMA synchronous').fetchone()[0])
    normal, full = 1, 2
    assert levels == [normal, full, full, normal]
    assert opened[0].execute('PRAGMA journal_mode').fetchone() == ('wal',)
    await store.aclose()
