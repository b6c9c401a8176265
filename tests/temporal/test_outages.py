"""What is away for a while only makes a run wait."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.postgres_server import EmbeddedPostgres, embedded_postgres
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay, wait_until_dead
from tests.temporal.runs import start, until

pytestmark = [pytest.mark.temporal, pytest.mark.postgres]


@pytest.fixture(scope='module')
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server of this module's own, which it stops and starts."""
    with embedded_postgres() as server:
        yield server


@pytest.fixture
def place(postgres: EmbeddedPostgres) -> tuple[str, str]:
    return postgres.dsn, f'run_{uuid.uuid4().hex}'


async def test_a_run_waits_for_its_store_and_goes_on(
    client: Client, workers: Workers, postgres: EmbeddedPostgres, place: tuple[str, str], tmp_path: Path
) -> None:
    await asyncio.to_thread(postgres.stop)
    workers.start(postgres=place)
    run = await start(client, workers, 'pay look', postgres=place)

    async def waiting() -> bool:
        pending = (await run.handle.describe()).raw_description.pending_activities
        return any('StoreUnavailableError' in str(item.last_failure) for item in pending)

    await until(waiting)
    await asyncio.to_thread(postgres.start)
    await run.result()
    assert run.output == 'paid | looked'
    assert len(noted(tmp_path, 'paid')) == 1
    await run.store.aclose()


async def test_a_store_that_goes_away_after_the_effect_loses_no_outcome(
    client: Client, workers: Workers, postgres: EmbeddedPostgres, place: tuple[str, str], tmp_path: Path
) -> None:
    workers.start(postgres=place)
    run = await start(client, workers, 'pay_when_told', postgres=place)
    await until(lambda: bool(noted(tmp_path, 'paid')))
    # The effect has happened, and the tool has not returned: its outcome meets a store that is away.
    await asyncio.to_thread(postgres.stop)
    (tmp_path / 'told').touch()
    await asyncio.to_thread(postgres.start)
    await run.result()
    assert run.output == 'paid'
    assert len(noted(tmp_path, 'paid')) == 1
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (effect.status, effect.attempts) == ('completed', 1)
    await run.store.aclose()


async def test_a_worker_that_dies_with_postgres_leaves_the_ledger_right(
    client: Client, workers: Workers, place: tuple[str, str], tmp_path: Path
) -> None:
    doomed = workers.start(postgres=place, kill_at='after_effect')
    run = await start(client, workers, 'pay', postgres=place)
    await wait_until_dead(doomed)
    workers.start(postgres=place, kill_at='after_effect')
    await run.result()
    assert len(noted(tmp_path, 'paid')) == 1
    [effect] = await run.store.list_unresolved_tool_effects(run_id=run.run_id)
    assert effect.tool_name == 'pay'
    await replay(await run.history(), workers.config)
    await run.store.aclose()


async def test_a_worker_told_to_stop_finishes_what_runs(client: Client, workers: Workers, tmp_path: Path) -> None:
    process = workers.start()
    run = await start(client, workers, 'pay_when_told')
    await until(lambda: bool(noted(tmp_path, 'paid')))
    process.terminate()
    (tmp_path / 'told').touch()
    await asyncio.to_thread(process.join, 30)
    assert process.exitcode == 0
    workers.start()
    await run.result()
    assert run.output == 'paid'
    assert len(noted(tmp_path, 'paid')) == 1
    assert await run.store.list_unresolved_tool_effects(run_id=run.run_id) == []
