"""Store maintenance as an activity, and how a workflow runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

from harness_temporal.errors import ConfigurationError
from harness_temporal.stores.maintenance import StoreMaintenance
from harness_temporal.stores.protocol import BaseStepStore
from harness_temporal.temporal.agents import AgentRegistry

MAINTAIN_ACTIVITY = 'harness_temporal__maintain'
"""Activity name. It is in histories for ever."""

_HEARTBEAT = timedelta(minutes=1)
_LONGEST = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class MaintenanceInput:
    """What to delete from the stores of a worker's agents."""

    idle_for: timedelta | None = None
    """Delete runs that nothing happened in for so long (`StoreMaintenance.expire`). `None` keeps all runs."""
    include_unresolved: bool = False
    """Also those with a tool effect whose outcome is unknown."""
    grace: timedelta = timedelta(days=1)
    """How long messages and blobs that nothing refers to are spared."""


@dataclass(frozen=True, kw_only=True)
class MaintenanceOutput:
    """What was deleted."""

    runs: int = 0
    messages: int = 0
    blobs: int = 0
    leftovers: int = 0


def maintain_activity(agents: AgentRegistry) -> Callable[..., Any]:
    """Return the activity, over all stores of a worker's agents."""

    @activity.defn(name=MAINTAIN_ACTIVITY)
    async def maintain(input: MaintenanceInput) -> MaintenanceOutput:
        stores = [_maintainable(store) for store in agents.stores()]
        runs = messages = blobs = leftovers = 0
        async with _heartbeats():
            for store in stores:
                # What shares a media store cannot be told from here, so each spares what any of them refers to.
                others = [other for other in stores if other is not store]
                maintenance = StoreMaintenance(store, grace=input.grace, sharing_media=others)
                if input.idle_for is not None:
                    expired = await maintenance.expire(
                        idle_for=input.idle_for, include_unresolved=input.include_unresolved
                    )
                    runs += len(expired)
                collected = await maintenance.collect()
                messages += collected.messages
                blobs += collected.blobs
                leftovers += collected.leftovers
        return MaintenanceOutput(runs=runs, messages=messages, blobs=blobs, leftovers=leftovers)

    return maintain


async def run_maintenance(input: MaintenanceInput) -> MaintenanceOutput:
    """Maintain the stores of the worker's agents. Call it from a workflow's run method."""
    return await workflow.execute_activity(
        MAINTAIN_ACTIVITY,
        input,
        result_type=MaintenanceOutput,
        start_to_close_timeout=_LONGEST,
        heartbeat_timeout=_HEARTBEAT,
        # What was deleted stays deleted: another attempt goes on where this one ended, and so does the next schedule.
        retry_policy=RetryPolicy(maximum_attempts=3),
        summary='maintain stores',
    )


def _maintainable(store: object) -> BaseStepStore:
    if not isinstance(store, BaseStepStore):
        raise ConfigurationError(
            f'`{type(store).__name__}` does not derive from `BaseStepStore` and has no maintenance.'
        )
    return store


@asynccontextmanager
async def _heartbeats() -> AsyncGenerator[None]:
    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(_HEARTBEAT.total_seconds() / 4)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
