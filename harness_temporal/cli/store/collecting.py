"""`store gc`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from harness_temporal.cli.opening import opened_store
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting
from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.settings import CallerSettings
from harness_temporal.hosting.worker import stores_of
from harness_temporal.stores.maintenance import StoreMaintenance


@dataclass(frozen=True)
class Wanted:
    """What to delete besides what nothing refers to. `None` keeps all."""

    expire_after_days: float | None
    expire_conversations_after_days: float | None
    include_unresolved: bool
    grace_hours: float


async def collect_garbage(store: str | None, wanted: Wanted) -> Output:
    """Delete what is old, if that is wanted, and what nothing refers to.

    Raises:
        ConfigurationError: What is wanted does not go together, or no store of conversations is named.
    """
    expires = wanted.expire_after_days is not None or wanted.expire_conversations_after_days is not None
    if wanted.include_unresolved and not expires:
        raise ConfigurationError(
            '`--include-unresolved` is for `--expire-after-days` and `--expire-conversations-after-days`.'
        )
    async with opened_store(store) as opened:
        maintenance = StoreMaintenance(opened, grace=timedelta(hours=wanted.grace_hours))
        # Before the runs by themselves, so that the runs of a conversation go with it.
        conversations = await _expired_conversations(wanted)
        expired: list[str] = []
        if wanted.expire_after_days is not None:
            with waiting('old runs'):
                expired = await maintenance.expire(
                    idle_for=timedelta(days=wanted.expire_after_days), include_unresolved=wanted.include_unresolved
                )
        with waiting('messages and blobs'):
            collected = await maintenance.collect()
    data = {
        'conversations': conversations,
        'runs': expired,
        'messages': collected.messages,
        'blobs': collected.blobs,
        'leftovers': collected.leftovers,
    }
    return Output(
        data,
        f'Deleted: {len(conversations)} conversations, {len(expired)} runs, {collected.messages} messages, '
        f'{collected.blobs} blobs, {collected.leftovers} leftovers.',
    )


async def _expired_conversations(wanted: Wanted) -> list[str]:
    if wanted.expire_conversations_after_days is None:
        return []
    conversations = CallerSettings.load().load_conversations()
    if conversations is None:
        raise ConfigurationError(
            '`--expire-conversations-after-days` needs their store: set HARNESS_CONVERSATIONS, or `conversations` in '
            '[worker] of harness.toml, to its `module:attribute`.'
        )
    async with stores_of([], None, conversations):
        with waiting('old conversations'):
            return await conversations.expire(
                idle_for=timedelta(days=wanted.expire_conversations_after_days),
                include_unresolved=wanted.include_unresolved,
            )
