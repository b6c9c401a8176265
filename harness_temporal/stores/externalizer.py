"""Moves the large parts of bodies into a media store on their way in, and back on their way out."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import Final, Literal, TypeAlias

from harness_temporal.errors import (
    ConfigurationError,
    MediaCorruptionError,
    MediaNotFoundError,
    StoreCorruptionError,
)
from harness_temporal.history import stored_message
from harness_temporal.media.context import MediaContext
from harness_temporal.media.protocol import MediaStore
from harness_temporal.records import StoredMessage
from harness_temporal.stores.external import cut, is_external, join, references

DEFAULT_THRESHOLD: Final = 64 * 1024
MediaStoreChoice: TypeAlias = MediaStore | Literal['default'] | None
"""What a store's `media_store` may be: its own kind, another one, or none, which keeps all in the store itself."""

KNOWN_FOR: Final = 3600.0
"""Seconds for which a body that was stored is not stored again. Collection spares blobs for longer (`maintenance`)."""
_KNOWN = 1024
_KNOWN_SIZE = 64 * 1024
_AT_ONCE = 4
"""Blobs of one body that are written or read at the same time."""


class Externalizer:
    """Knows the media store of a step store, and which bodies are in it."""

    def __init__(self, media_store: MediaStore | None, threshold: int) -> None:
        if threshold < 1:
            raise ConfigurationError(f'`media_threshold_bytes` must be at least 1, got {threshold}.')
        self.media_store = media_store
        self.threshold = threshold
        self._known: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    async def store(self, body: bytes, digest: bytes | None = None) -> bytes:
        """Return the stored form of a body, after its parts were stored."""
        if self.media_store is None or len(body) < self.threshold:
            return cut(body, len(body) + 1)[0]
        digest = digest or hashlib.sha256(body).digest()
        known = self._known.get(digest)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        stored, parts = cut(body, self.threshold)
        for start in range(0, len(parts), _AT_ONCE):
            await asyncio.gather(
                *(
                    self.media_store.put(part.data, context=MediaContext(media_type=part.media_type))
                    for part in parts[start : start + _AT_ONCE]
                )
            )
        if len(stored) <= _KNOWN_SIZE:
            self._known[digest] = stored, time.monotonic() + KNOWN_FOR
            self._known.move_to_end(digest)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return stored

    async def restore(self, stored: bytes, run_id: str) -> bytes:
        """Return the body of a stored form.

        Raises:
            StoreCorruptionError: A part is missing or damaged, or the form is. The error names the run and the blob.
            StoreSchemaError: A newer release wrote it.
            ConfigurationError: There is a part, and the store has no media store.
        """
        if not is_external(stored):
            return stored
        uris = list({reference.uri for reference in references(stored)})
        blobs: dict[str, bytes] = {}
        for start in range(0, len(uris), _AT_ONCE):
            asked = uris[start : start + _AT_ONCE]
            blobs |= zip(asked, await asyncio.gather(*(self._get(uri, run_id) for uri in asked)), strict=True)
        return join(stored, blobs)

    async def restore_message(self, message: StoredMessage, run_id: str) -> StoredMessage:
        """Return a message as it was before it was stored.

        Raises:
            StoreCorruptionError: It is damaged, or see `restore`.
        """
        restored = stored_message(await self.restore(message.body, run_id))
        if restored.digest != message.digest:
            raise StoreCorruptionError('message log', f'run {run_id!r} has a damaged message {message.digest.hex()}.')
        return restored

    async def _get(self, uri: str, run_id: str) -> bytes:
        if self.media_store is None:
            raise ConfigurationError(
                f'Run {run_id!r} has a part that is kept as the blob {uri}: give its store the `media_store` that it '
                'was written with.'
            )
        try:
            return await self.media_store.get(uri)
        except (MediaNotFoundError, MediaCorruptionError) as error:
            raise StoreCorruptionError('media', f'run {run_id!r} needs the blob {uri}: {error}') from error
