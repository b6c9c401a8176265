"""The payload storage of the variants that have one: `stored`, and `sealed`, which also encrypts."""

from __future__ import annotations

from pathlib import Path

from harness_temporal import HarnessPlugin
from harness_temporal.media import SqliteMediaStore
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage

_KEYS = KeyRing.of(Key('benchmark', bytes(32)))


def media_store(store: Path) -> SqliteMediaStore:
    """The media store beside a variant's step store."""
    return SqliteMediaStore(store.with_name('payloads.db'))


def plugin_of(variant: str, store: Path) -> HarnessPlugin:
    """The plugin of a worker, and of a client that may read what it writes."""
    return HarnessPlugin(payloads=PayloadStorage(media_store(store), keys=_KEYS if variant == 'sealed' else None))


async def payload_bytes(store: Path) -> int:
    """Bytes of all pieces."""
    pieces = media_store(store)
    try:
        return sum([blob.size async for blob in pieces.blobs()])
    finally:
        await pieces.aclose()
