"""Deleting the pieces of payloads that no history can refer to any more.

Nobody can tell which histories refer to a piece: Temporal deletes them when their retention is over. So pieces go by
age. While new payloads refer to a piece, each worker puts it again, and thereby touches it, once an hour
(`media.known`). A payload's pieces were therefore touched no more than an hour before the payload was made.
"""

from __future__ import annotations

from datetime import timedelta

from harness_temporal.errors import ConfigurationError
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.records import utc_now
from harness_temporal.stores.maintenance import SHORTEST_GRACE


async def expire_payloads(media_store: BaseMediaStore, *, untouched_for: timedelta) -> int:
    """Delete pieces that no payload was made of for so long. Returns how many.

    Args:
        media_store: That of a `PayloadStorage`, and of nothing else.
        untouched_for: Longer than the longest run *and* the namespace's retention after it *and* two hours. A workflow
            that still runs, or is replayed or looked at later, needs the pieces of its first payload.

    Raises:
        ConfigurationError: `untouched_for` is less than two hours.
    """
    if untouched_for < SHORTEST_GRACE:
        raise ConfigurationError(f'`untouched_for` must be at least {SHORTEST_GRACE}, got {untouched_for}.')
    before = utc_now() - untouched_for
    old = [blob.digest async for blob in media_store.blobs() if blob.touched_at < before]
    deleted = 0
    for digest in old:
        deleted += await media_store.delete(digest, untouched_since=before)
    await media_store.delete_leftovers(untouched_since=before)
    return deleted
