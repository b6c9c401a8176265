"""Moves the large parts of bodies into a media store on their way in, and back on their way out."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from harness_temporal.errors import (
    ConfigurationError,
    MediaCorruptionError,
    MediaNotFoundError,
    StoreCorruptionError,
)
from harness_temporal.history import stored_message
from harness_temporal.media.batches import each
from harness_temporal.media.context import MediaContext
from harness_temporal.media.known import Known
from harness_temporal.media.protocol import MediaStore
from harness_temporal.recent import Recent
from harness_temporal.records import EncodedHistory, StoredMessage
from harness_temporal.stores.external import cut, is_external, parse

DEFAULT_THRESHOLD: Final = 64 * 1024
MediaStoreChoice: TypeAlias = MediaStore | Literal['default'] | None
"""What a store's `media_store` may be: its own kind, another one, or none, which keeps all in the store itself."""

_KNOWN = 1024
"""Bodies that are known to be stored, at most, each of `_KNOWN_SIZE` bytes at most."""
_KNOWN_SIZE = 64 * 1024
_HISTORIES = 1024
"""Histories of which it is known what is large in them."""
_AT_ONCE = 4
"""Blobs of one body that are written or read at the same time."""


class Externalizer:
    """Knows the media store of a step store, and which bodies are in it."""

    def __init__(self, media_store: MediaStore | None, threshold: int) -> None:
        if threshold < 1:
            raise ConfigurationError(f'`media_threshold_bytes` must be at least 1, got {threshold}.')
        self.media_store = media_store
        self.threshold = threshold
        self._known = Known[bytes, bytes](_KNOWN)
        self._large = _Large(threshold)

    async def store(self, body: bytes, digest: bytes | None = None) -> bytes:
        """Return the stored form of a body, after its parts were stored."""
        if self.media_store is None or len(body) < self.threshold:
            return cut(body, len(body) + 1)[0]
        digest = digest or hashlib.sha256(body).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        media_store, put_at = self.media_store, time.monotonic()
        stored, parts = cut(body, self.threshold)
        await each(
            lambda part: media_store.put(part.data, context=MediaContext(media_type=part.media_type)),
            parts,
            at_once=_AT_ONCE,
        )
        if len(stored) <= _KNOWN_SIZE:
            self._known.put(digest, stored, put_at=put_at)
        return stored

    async def store_history(self, history: EncodedHistory) -> EncodedHistory:
        """Return a history whose messages are in their stored form, after their parts were stored."""
        if self.media_store is None:
            return history
        large = self._large.of(history)
        if not large:
            return history
        links = list(history.links)
        for index in large:
            message = links[index].message
            stored = StoredMessage(message.digest, await self.store(message.body, message.digest))
            links[index] = replace(links[index], message=stored)
        return replace(history, links=tuple(links))

    async def restore(self, stored: bytes, owner: str) -> bytes:
        """Return the body of a stored form. `owner` is whose it is, such as `run 'run-1'`, for errors.

        Raises:
            StoreCorruptionError: A part is missing or damaged, or the form is. The error names the owner and the blob.
            StoreSchemaError: A newer release wrote it.
            ConfigurationError: There is a part, and the store has no media store.
        """
        if not is_external(stored):
            return stored
        body = parse(stored)
        uris = list(dict.fromkeys(reference.uri for reference in body.references))
        blobs = await each(lambda uri: self._get(uri, owner), uris, at_once=_AT_ONCE)
        return body.join(dict(zip(uris, blobs, strict=True)))

    async def restore_message(self, message: StoredMessage, owner: str) -> StoredMessage:
        """Return a message as it was before it was stored.

        Raises:
            StoreCorruptionError: It is damaged, or see `restore`.
        """
        restored = stored_message(await self.restore(message.body, owner))
        if restored.digest != message.digest:
            raise StoreCorruptionError('message log', f'{owner} has a damaged message {message.digest.hex()}.')
        return restored

    async def _get(self, uri: str, owner: str) -> bytes:
        if self.media_store is None:
            raise ConfigurationError(
                f'A part of {owner} is kept as the blob {uri}: give its store the `media_store` that it was written '
                'with.'
            )
        try:
            return await self.media_store.get(uri)
        except (MediaNotFoundError, MediaCorruptionError) as error:
            raise StoreCorruptionError('media', f'{owner} needs the blob {uri}: {error}') from error


class _Large:
    """Which messages of histories are large. A history comes by with every step, and only its end is new."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        # The numbers of the large messages in whole histories, by the last link.
        self._numbers = Recent[bytes, tuple[int, ...]](_HISTORIES)
        self._lock = threading.Lock()

    def of(self, history: EncodedHistory) -> list[int]:
        """Return the indexes of the links with large messages, in order."""
        with self._lock:
            numbers = self._of(history)
        return [number - history.base_length - 1 for number in numbers if number > history.base_length]

    def _of(self, history: EncodedHistory) -> tuple[int, ...]:
        numbers: list[int] = []
        known: tuple[int, ...] | None = () if history.base is None else self._numbers.get(history.base)
        for item in reversed(history.links):
            if (found := self._numbers.get(item.digest)) is not None:
                known = found
                break
            if len(item.message.body) >= self._threshold:
                numbers.append(item.length)
        whole = (*(known or ()), *reversed(numbers))
        if known is not None and history.head is not None:
            self._numbers.put(history.head, whole)
        return whole
