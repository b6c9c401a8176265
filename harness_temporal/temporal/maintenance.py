"""Store maintenance as an activity, and how a workflow runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.errors import ConfigurationError
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.stores.maintenance import SHORTEST_GRACE, StoreMaintenance
from harness_temporal.stores.protocol import BaseStepStore
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.durability import DEFAULT_RETRY_POLICY
from harness_temporal.temporal.heartbeats import heartbeats
from harness_temporal.temporal.payloads.expiry import expire_payloads
from harness_temporal.temporal.payloads.storage import PayloadStorage

MAINTAIN_ACTIVITY = 'harness_temporal__maintain'
"""Activity name. It is in histories for ever."""

_HEARTBEAT = timedelta(minutes=1)
_LONGEST = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class MaintenanceInput:
    """What to delete from the stores of a worker's agents, and from those of its conversations and its payloads."""

    idle_for: timedelta | None = None
    """Delete runs that nothing happened in for so long (`StoreMaintenance.expire`). `None` keeps all runs."""
    include_unresolved: bool = False
    """Also those with a tool effect whose outcome is unknown."""
    grace: timedelta = timedelta(days=1)
    """How long messages and blobs that nothing refers to are spared."""
    payloads_untouched_for: timedelta | None = None
    """Delete pieces of payloads that were not touched for so long (`expire_payloads`). `None` keeps all pieces. It has
    to be longer than the longest run, the namespace's retention and two hours together. What can be known of this is
    checked: retention and two hours."""
    conversations_idle_for: timedelta | None = None
    """Delete conversations that nothing happened in for so long, with the runs that are in the same database
    (`ConversationStore.expire`). `None` keeps all conversations, also those whose runs `idle_for` deletes."""


@dataclass(frozen=True, kw_only=True)
class MaintenanceOutput:
    """What was deleted."""

    runs: int = 0
    messages: int = 0
    blobs: int = 0
    leftovers: int = 0
    payload_pieces: int = 0
    conversations: int = 0
    """Their runs are not among `runs`."""


def maintain_activity(
    agents: AgentRegistry, payloads: PayloadStorage | None, conversations: ConversationStore | None
) -> Callable[..., Any]:
    """Return the activity, over all stores of a worker's agents and those of its conversations and its payloads."""

    @activity.defn(name=MAINTAIN_ACTIVITY)
    async def maintain(input: MaintenanceInput) -> MaintenanceOutput:
        stores = [_maintainable(store) for store in agents.stores()]
        runs = messages = blobs = leftovers = pieces = 0
        untouched_for = input.payloads_untouched_for
        media_store = await _payload_store(payloads, untouched_for) if untouched_for is not None else None
        if input.conversations_idle_for is not None and conversations is None:
            raise ConfigurationError('`conversations_idle_for` needs `HarnessPlugin(conversations=...)`.')
        heads: list[str] = []
        async with heartbeats():
            if input.conversations_idle_for is not None and conversations is not None:
                # Before the runs by themselves, so that the runs of a conversation go with it.
                heads = await conversations.expire(
                    idle_for=input.conversations_idle_for, include_unresolved=input.include_unresolved
                )
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
            if media_store is not None and untouched_for is not None:
                pieces = await expire_payloads(media_store, untouched_for=untouched_for)
        return MaintenanceOutput(
            runs=runs,
            messages=messages,
            blobs=blobs,
            leftovers=leftovers,
            payload_pieces=pieces,
            conversations=len(heads),
        )

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
        retry_policy=replace(DEFAULT_RETRY_POLICY, maximum_attempts=3),
        summary='maintain stores',
    )


def _maintainable(store: object) -> BaseStepStore:
    if not isinstance(store, BaseStepStore):
        raise ConfigurationError(
            f'`{type(store).__name__}` does not derive from `BaseStepStore` and has no maintenance.'
        )
    return store


async def _payload_store(payloads: PayloadStorage | None, untouched_for: timedelta) -> BaseMediaStore:
    """Return the media store of the payloads, once it is known that histories do not outlive what is in it.

    Raises:
        ConfigurationError: The namespace keeps histories for longer, or there is no such store.
    """
    media_store = payloads.media_store if payloads is not None else None
    if not isinstance(media_store, BaseMediaStore):
        raise ConfigurationError(
            '`payloads_untouched_for` needs `HarnessPlugin(payloads=PayloadStorage(...))` with a media store that '
            'derives from `BaseMediaStore`.'
        )
    client = activity.client()
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), retry=True
    )
    retention = described.config.workflow_execution_retention_ttl.ToTimedelta()
    if untouched_for < retention + SHORTEST_GRACE:
        raise ConfigurationError(
            f'`payloads_untouched_for` is {untouched_for}, but namespace {client.namespace!r} keeps histories for '
            f'{retention} after their end. It must be at least {retention + SHORTEST_GRACE}, and longer by the longest '
            'run: pieces that a history refers to would be deleted.'
        )
    return media_store
