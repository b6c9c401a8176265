"""PostgreSQL at size: what a read touches is bounded by what it asks for, and every wait has an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.databases.postgres.schema import _lock_key
from harness_temporal.databases.postgres.sql import Statements
from harness_temporal.errors import StoreUnavailableError
from harness_temporal.stores.postgres import PostgresStepStore
from harness_temporal.testing.samples import a_run, a_snapshot, a_start, an_event, turns
from tests.conformance.opening import drop_schema

pytestmark = pytest.mark.postgres

PACKAGE = 'harness_temporal.stores.postgres'
EVERYTHING = 2**63 - 1
Open = Callable[..., PostgresStepStore]

# The run `big` has 10,000 events, 10,000 tool effects of which 8 are unresolved, and 1,000 snapshots. Each of these
# extends the history of the one before by a message, and the last hundred are interrupted. The run `compacted` has as
# many snapshots of the same histories, the longest first and one of ten messages last. The runs with numbers have four
# times as much together. A quarter of all runs is in the conversation `hot`, and as many have the parent `hot`.
FILL = """
INSERT INTO messages
  SELECT sha256(('m' || i)::bytea), repeat(md5(i::text), 20)::bytea FROM generate_series(1, 41000) AS i;
INSERT INTO history_links
  SELECT sha256(('l' || i)::bytea), CASE WHEN i > 1 THEN sha256(('l' || i - 1)::bytea) END,
    sha256(('m' || i)::bytea), i
  FROM generate_series(1, 1000) AS i;
INSERT INTO history_links
  SELECT sha256(('l' || i)::bytea), CASE WHEN i % 100 > 1 THEN sha256(('l' || i - 1)::bytea) END,
    sha256(('m' || i)::bytea), i % 100
  FROM generate_series(1001, 41000) AS i WHERE i % 100 > 0;
INSERT INTO runs (run_id, conversation_id, parent_run_id, metadata, started_at)
  SELECT 'run-' || i, CASE i % 4 WHEN 0 THEN 'hot' ELSE 'conversation-' || i % 2000 END,
    CASE i % 4 WHEN 1 THEN 'hot' ELSE 'run-' || i % 1500 END, '{}', now() + (i * 7919 % 40000) * interval '1s'
  FROM generate_series(1, 40000) AS i;
INSERT INTO events (run_id, seq, kind, step_index, timestamp, metadata)
  SELECT CASE i % 5 WHEN 0 THEN 'big' ELSE 'run-' || i % 800 END, (i + 4) / 5, 'run_started', 1, now(), '{}'
  FROM generate_series(1, 50000) AS i ORDER BY md5(i::text);
INSERT INTO tool_effects
    (run_id, seq, ledger_key, tool_call_id, tool_name, status, step_index, attempts, holder, started_at, revision)
  SELECT CASE i % 5 WHEN 0 THEN 'big' ELSE 'run-' || i % 800 END, i, 'call-' || i, 'call-' || i, 'tool',
    CASE WHEN i % 7000 = 5 OR i % 5 = 1 AND i % 9 = 0 THEN 'started' ELSE 'completed' END, 1, 1, '', now(), 'r'
  FROM generate_series(1, 50000) AS i ORDER BY md5(i::text);
INSERT INTO snapshots (run_id, seq, step_index, state, timestamp, head, length)
  SELECT 'big', i, 1, CASE WHEN i > 900 THEN 'interrupted' ELSE 'complete' END, now(), sha256(('l' || i)::bytea), i
  FROM generate_series(1, 1000) AS i
  UNION ALL
  SELECT 'compacted', i, 1, 'complete', now(), sha256(('l' || least(1000, 1010 - i))::bytea), least(1000, 1010 - i)
  FROM generate_series(1, 1000) AS i
  UNION ALL
  SELECT 'run-' || i % 800, i, 1, 'complete', now(), sha256(('l' || i)::bytea), i % 100
  FROM generate_series(1001, 41000) AS i WHERE i % 100 > 0
  ORDER BY 2, 1;
INSERT INTO model_responses SELECT 'run-' || i, 'key', '' FROM generate_series(1, 40000) AS i;
ANALYZE;
"""

# The query, its arguments, and how many rows of tables it may touch. None of these grows with what else is there.
READS: list[tuple[str, tuple[object, ...], int]] = [
    ('get_run', ('run-5',), 1),
    ('list_runs', (20,), 20),
    ('list_runs_of_conversation', (20, 'hot'), 20),
    ('list_runs_of_conversation', (EVERYTHING, 'conversation-5'), 20),
    ('list_runs_of_parent', (20, 'hot', None), 20),
    ('list_runs_of_parent', (EVERYTHING, 'run-6', None), 27),
    ('list_events', ('big', 5000, 100), 100),
    ('list_events', ('big', 9990, EVERYTHING), 10),
    ('list_events', ('big', 10000, EVERYTHING), 0),
    ('list_events', ('big', 0, EVERYTHING), 10000),
    # A snapshot, and each link and message of its history.
    ('read_snapshots', ('big', False, 1), 1 + 2 * 900),
    ('read_snapshots', ('big', True, 1), 2 + 2 * 1000),
    ('read_snapshots', ('compacted', False, 1), 1 + 2 * 10),
    ('get_tool_effect', ('big', 'call-505'), 1),
    ('list_tool_effects', ('big',), 10000),
    ('list_unresolved_tool_effects', ('big',), 8),
    ('ledger_entries', ('[{"run_id": "big", "ledger_key": "call-505"}]',), 1),
    ('get_model_response', ('run-5', 'key'), 1),
]
# The links of 1,000 heads, those of their parents, and the messages.
ALL_SNAPSHOTS = ('read_snapshots', ('big', True, EVERYTHING), 1000 + 2 * 1000 + 1000)
RETENTION = {
    *('runs_by_id', 'delete_runs', 'loose_links', 'collect_links'),
    *('external_messages', 'external_values', 'external_responses'),
}
"""Asked once in a while, to go through whole tables."""
BLOCKS_PER_ROW = 8
"""Three or four of an index and one of the table for each row that is looked up by itself, and some to spare."""
BLOCKS_OF_INDEX = 10


@pytest.fixture(scope='module')
def filled(postgres: str) -> Iterator[str]:
    """Yield a schema that holds a lot."""
    import asyncpg

    schema = f'size_{uuid4().hex}'

    async def fill() -> None:
        async with aclosing(PostgresStepStore(postgres, schema=schema)) as store:
            await store.get_run(run_id='big')
        connection = await asyncpg.connect(postgres, server_settings={'search_path': schema})
        await connection.execute(FILL)
        await connection.close()

    asyncio.run(fill())
    yield schema
    asyncio.run(drop_schema(postgres, schema))


@pytest.fixture
async def connection(postgres: str) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(postgres)
    yield connection
    await connection.close()


@pytest.fixture
async def open_store(postgres: str) -> AsyncIterator[Open]:
    """Open stores with one connection each on the schema of the test."""
    schema = f'size_{uuid4().hex}'
    async with AsyncExitStack() as stack:
        stack.push_async_callback(drop_schema, postgres, schema)

        def open_store(**settings: Any) -> PostgresStepStore:
            defaults = {'schema': schema, 'max_pool_size': 1, 'acquire_timeout': 10.0}
            store = PostgresStepStore(postgres, **{**defaults, **settings})
            stack.push_async_callback(store.aclose)
            return store

        yield open_store


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get('Plans', []):
        yield from nodes(part)


def rows_touched(plan: dict[str, Any]) -> float:
    """Return how many rows of tables a plan looked at, whether or not it made use of them."""
    return sum(
        node['Actual Loops']
        * (node['Actual Rows'] + node.get('Rows Removed by Filter', 0) + node.get('Rows Removed by Index Recheck', 0))
        for node in nodes(plan)
        if 'Relation Name' in node
    )


# --- reads ---


def test_every_read_is_looked_at() -> None:
    shared = Statements('x', 'harness_temporal.databases.postgres').queries
    queries = set(Statements('x', PACKAGE).queries) - set(shared)
    assert {name for name, _, _ in READS} == queries - {'commit_batch', *RETENTION}


@pytest.mark.parametrize('mode', ['force_custom_plan', 'force_generic_plan'])
@pytest.mark.parametrize(('name', 'arguments', 'bound'), [*READS, ALL_SNAPSHOTS], ids=str)
async def test_read_touches_only_what_it_asks_for(
    connection: Any, filled: str, name: str, arguments: tuple[object, ...], bound: int, mode: str
) -> None:
    query = Statements(filled, PACKAGE).queries[name]
    await connection.execute(f'SET plan_cache_mode = {mode}')
    [[answer]] = await connection.fetch(f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}', *arguments)
    [explained] = json.loads(answer)
    plan = explained['Plan']
    assert [node['Relation Name'] for node in nodes(plan) if 'Seq Scan' in node['Node Type']] == []
    touched = rows_touched(plan)
    blocks = plan['Shared Hit Blocks'] + plan['Shared Read Blocks']
    print(f'{touched:g} rows, {blocks} blocks, {explained["Execution Time"]} ms')
    # Not fewer either: then nothing would have been measured.
    assert bound * 0.9 <= touched <= bound + 1, answer
    assert blocks <= BLOCKS_OF_INDEX + BLOCKS_PER_ROW * bound, answer


# --- waits ---


async def test_call_that_finds_no_connection_says_so_in_time_and_names_the_time(
    open_store: Open, connection: Any
) -> None:
    store = open_store(acquire_timeout=0.3)
    await store.commit([a_run(), an_event()])
    async with connection.transaction():
        await connection.execute(f'SELECT FROM {store._connections.schema}.run_sequences FOR UPDATE')
        busy = asyncio.create_task(store.append_event(an_event()))
        started = asyncio.get_running_loop().time()
        calls = [store.latest_snapshot(run_id='run-1'), store.append_event(an_event('run-2')), store.list_runs()]
        async with asyncio.timeout(10):
            errors = await asyncio.gather(*calls, return_exceptions=True)
        waited = asyncio.get_running_loop().time() - started
    assert [type(error) for error in errors] == [StoreUnavailableError] * 3
    assert all('no connection within 0.3 seconds: the 1 of the pool are busy' in str(error) for error in errors)
    assert waited >= 0.3
    await busy
    assert len(await store.list_events(run_id='run-1')) == 2


async def test_call_that_waits_for_the_schema_says_so_in_time(open_store: Open, connection: Any) -> None:
    store = open_store(acquire_timeout=0.3, max_pool_size=2)
    statements = Statements(store._connections.schema, PACKAGE)
    async with connection.transaction():
        await connection.fetch(statements.queries['lock_schema'], _lock_key(statements))
        first = asyncio.create_task(store.append_event(an_event()))
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailableError, match=r'within 0\.3 seconds: .* still setting up the schema'):
                await asyncio.gather(first, store.list_runs())
    await first
    assert len(await store.list_events(run_id='run-1')) == 1


# --- cancellation, with one connection: the next call has none if it leaks ---


async def cancelled_after(turns: int, call: Any) -> None:
    """Start a call, let the event loop turn so often, and cancel the call."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def cancelled_by_the_clock(seconds: float, *calls: Any) -> None:
    """Start calls at once and cancel them after a while, because the loop may turn often before an answer comes."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_cancelled_first_use_leaves_a_store_that_works(postgres: str) -> None:
    import asyncpg

    # Given, so that connecting is not what is cancelled: the driver itself warns about that.
    async with asyncpg.create_pool(postgres, min_size=1, max_size=1) as pool:
        for turns_of_loop in range(0, 60, 3):
            schema = f'size_{uuid4().hex}'
            async with aclosing(PostgresStepStore(pool=pool, schema=schema, acquire_timeout=10)) as store:
                await cancelled_after(turns_of_loop, store.append_event(an_event()))
                await cancelled_by_the_clock(turns_of_loop / 1_000, store.append_event(an_event()))
                await store.append_event(an_event('run-2'))
                assert len(await store.list_events(run_id='run-2')) == 1
            # No lock on the schema is left either.
            await drop_schema(postgres, schema)


@pytest.mark.parametrize('given', [True, False], ids=['given pool', 'own pool'])
async def test_cancelled_reads_and_commits_leak_no_connection(postgres: str, open_store: Open, *, given: bool) -> None:
    import asyncpg

    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(asyncpg.create_pool(postgres, min_size=0, max_size=1)) if given else None
        settings: dict[str, Any] = {'schema': open_store()._connections.schema, 'acquire_timeout': 10.0}
        store = PostgresStepStore(None if given else postgres, pool=pool, max_pool_size=1, **settings)
        stack.push_async_callback(store.aclose)
        await store.commit([an_event(), a_start(), a_snapshot(turns(40))])
        calls: list[Callable[[int], Any]] = [
            lambda _: store.latest_snapshot(run_id='run-1'),
            lambda _: store.list_events(run_id='run-1'),
            lambda _: store.list_runs(conversation_id='x'),
            lambda number: store.commit([an_event(idempotency_key=f'{number}'), a_snapshot(turns(41))]),
            lambda number: store.record_tool_effect(a_start(call_key=f'{number}')),
        ]
        for attempt, call in product(range(30), calls):
            await cancelled_after(attempt, call(attempt))
            # The second one is cancelled while it waits for the connection.
            await cancelled_by_the_clock(attempt / 10_000, call(attempt), calls[0](attempt))
            assert await store.get_run(run_id='run-1') is None
        events = await store.list_events(run_id='run-1')
        keys = [event.idempotency_key for event in events]
        assert len(keys) == len(set(keys)) > 1
