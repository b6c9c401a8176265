"""What this process put into a media store lately, and so need not put again."""

from __future__ import annotations

import time
from typing import Final, Generic, TypeVar

from harness_temporal.recent import Recent

K = TypeVar('K')
V = TypeVar('V')

KNOWN_FOR: Final = 3600.0
"""Seconds for which a blob that was put counts as there. Collection spares blobs for longer (`SHORTEST_GRACE`)."""


class Known(Generic[K, V]):
    """What is known of blobs that were put within the last hour.

    For an hour only, so that a blob is put again, and with that touched, while somebody refers to it anew.

    Args:
        limit: How many to remember.
    """

    def __init__(self, limit: int) -> None:
        self._known = Recent[K, tuple[V, float]](limit)

    def get(self, key: K) -> V | None:
        """Return what is known, if the blob was put within the last hour."""
        known = self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def put(self, key: K, value: V, *, put_at: float) -> None:
        """Remember a blob. `put_at` is the monotonic time before it was put."""
        self._known.put(key, (value, put_at + KNOWN_FOR))
