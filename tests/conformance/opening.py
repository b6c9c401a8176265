"""What the backends' `open_store` fixtures share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing import OpenStore


@asynccontextmanager
async def closing_what_it_opens(make: Callable[[int | None], StepStore]) -> AsyncIterator[OpenStore]:
    """Yield what opens stores with a bound on snapshots, and close them all afterwards."""
    async with AsyncExitStack() as stack:

        async def open_store(*, max_snapshots_per_run: int | None = None) -> StepStore:
            store = make(max_snapshots_per_run)
            stack.push_async_callback(store.aclose)
            return store

        yield open_store


async def drop_schema(dsn: str, schema: str) -> None:
    """Drop a schema of PostgreSQL. Fails if a store left a transaction open, which would hold locks."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {schema} CASCADE")
    finally:
        await connection.close()
