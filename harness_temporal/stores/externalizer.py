"""What becomes of bodies on their way in: large parts go to a media store, and with keys all is encrypted. And back."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, ParamSpec, TypeAlias, TypeVar

from anyio import to_thread

from harness_temporal.encryption.ciphers import DecryptionError
from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import (
    ConfigurationError,
    HistoryMissingError,
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
from harness_temporal.stores.external import Part, cut, is_external, is_plain, parse
from harness_temporal.stores.known_links import KnownLinks
from harness_temporal.stores.sealing import Sealer, Sealers, damaged, plain_text, restored_text, sealer_of

P = ParamSpec('P')
T = TypeVar('T')
DEFAULT_THRESHOLD: Final = 64 * 1024
MediaStoreChoice: TypeAlias = MediaStore | Literal['default'] | None
"""What a store's `media_store` may be: its own kind, another one, or none, which keeps all in the store itself."""
_KnownBy: TypeAlias = tuple[str | None, bytes]
"""The id of the key that a body is encrypted with, if any, and the body's digest."""

_KNOWN = 1024
"""Bodies that are known to be stored, at most, each of `_KNOWN_SIZE` bytes at most."""
_KNOWN_SIZE = 64 * 1024
_HISTORIES = 1024
"""Histories of which it is known what is large in them."""
_AT_ONCE = 4
"""Blobs of one body that are written or read at the same time."""
_IN_THREAD = 1 << 20
"""Bytes that are encrypted or decrypted in a thread, so that the event loop can go on."""


class Externalizer:
    """Knows the media store and the keys of a step store, and which bodies are in it.

    With keys, whatever is stored is encrypted with the newest one. What is read may be encrypted or not.

    Raises:
        ConfigurationError: The threshold is wrong, or there are keys and the extra `crypto` is not installed.
    """

    def __init__(self, media_store: MediaStore | None, threshold: int, keys: KeyRing | None = None) -> None:
        if threshold < 1:
            raise ConfigurationError(f'`media_threshold_bytes` must be at least 1, got {threshold}.')
        self.media_store = media_store
        self.threshold = threshold
        self._sealers = None if keys is None else Sealers(keys)
        self._known = Known[_KnownBy, bytes](_KNOWN)
        self._large = _Large(threshold)
        self._links = KnownLinks()

    @property
    def encrypts(self) -> bool:
        """Whether there are keys."""
        return self._sealers is not None

    async def store(self, body: bytes, digest: bytes | None = None) -> bytes:
        """Return the stored form of a body, after its parts were stored."""
        sealer = None if self._sealers is None else await self._sealers.newest()
        if self.media_store is None or len(body) < self.threshold:
            return (await _cut(body, None, sealer))[0]
        known_by = sealer and sealer.key_id, digest or hashlib.sha256(body).digest()
        known = self._known.get(known_by)
        if known is not None:
            return known
        media_store, put_at = self.media_store, time.monotonic()
        stored, parts = await _cut(body, self.threshold, sealer)
        await each(
            lambda part: media_store.put(part.data, context=MediaContext(media_type=part.media_type)),
            parts,
            at_once=_AT_ONCE,
        )
        if len(stored) <= _KNOWN_SIZE:
            self._known.put(known_by, stored, put_at=put_at)
        return stored

    async def store_text(self, text: str | None) -> str | None:
        """Return the stored form of a text."""
        if text is None:
            return None
        return plain_text(text) if self._sealers is None else (await self._sealers.newest()).seal_text(text)

    async def save(
        self, histories: Sequence[EncodedHistory], write: Callable[[Sequence[EncodedHistory]], Awaitable[T]]
    ) -> T:
        """Have `write` write histories whose messages are in their stored form, after their parts were stored.

        With keys it gets only what is new of a history, because a whole one would be encrypted at every step. If the
        store does not hold the rest any more, `write` has to raise `HistoryMissingError` and write nothing. It is then
        called again, with all of it.
        """
        if self._sealers is None:
            return await write([await self.store_history(history) for history in histories])
        new = [self._links.unknown_part(history) for history in histories]
        try:
            done = await write([await self.store_history(history) for history in new])
        except HistoryMissingError:
            if new == [*histories]:
                raise
            self._links.forget_links()
            done = await write([await self.store_history(history) for history in histories])
        for history in histories:
            self._links.saw_history(history)
        return done

    async def store_history(self, history: EncodedHistory) -> EncodedHistory:
        """Return a history whose messages are in their stored form, after their parts were stored."""
        if self._sealers is not None:
            changed = range(len(history.links))
        elif self.media_store is not None:
            changed = self._large.of(history)
        else:
            changed = ()
        if not changed:
            return history
        links = list(history.links)
        for index in changed:
            message = links[index].message
            stored = StoredMessage(message.digest, await self.store(message.body, message.digest))
            links[index] = replace(links[index], message=stored)
        return replace(history, links=tuple(links))

    async def restore(self, stored: bytes, owner: str) -> bytes:
        """Return the body of a stored form. `owner` is whose it is, such as `run 'run-1'`, for errors.

        Raises:
            StoreCorruptionError: A part is missing or damaged, or the form is. The error names the owner and the blob.
            StoreSchemaError: A newer release wrote it.
            MissingKeyError: It is encrypted, and the key is not there.
            ConfigurationError: There is a part, and the store has no media store.
        """
        if is_plain(stored):
            return stored
        try:
            return await self._restore(stored, owner)
        except DecryptionError as error:
            raise damaged(owner, error) from error

    async def _restore(self, stored: bytes, owner: str) -> bytes:
        if not is_external(stored):
            sealer = await sealer_of(self._sealers, stored, owner)
            return await _in_thread_if_large(len(stored), sealer.open, stored)
        body, sealer = parse(stored), None
        if body.is_sealed:
            sealer = await sealer_of(self._sealers, body.rest, owner)
            body = await _in_thread_if_large(len(stored), body.opened, sealer)
        uris = list(dict.fromkeys(reference.uri for reference in body.references))
        blobs = await each(lambda uri: self._get(uri, sealer, owner), uris, at_once=_AT_ONCE)
        return body.join(dict(zip(uris, blobs, strict=True)))

    async def restore_text(self, stored: str | None, owner: str) -> str | None:
        """Return the text of a stored form. `owner` is whose it is, for errors.

        Raises:
            StoreCorruptionError: It is damaged.
            StoreSchemaError: A newer release wrote it.
            MissingKeyError: It is encrypted, and the key is not there.
        """
        return None if stored is None else await restored_text(self._sealers, stored, owner)

    async def restore_message(self, message: StoredMessage, owner: str) -> StoredMessage:
        """Return a message as it was before it was stored.

        Raises:
            StoreCorruptionError: It is damaged, or see `restore`.
        """
        restored = stored_message(await self.restore(message.body, owner))
        if restored.digest != message.digest:
            raise StoreCorruptionError('message log', f'{owner} has a damaged message {message.digest.hex()}.')
        return restored

    async def _get(self, uri: str, sealer: Sealer | None, owner: str) -> bytes:
        if self.media_store is None:
            raise ConfigurationError(
                f'A part of {owner} is kept as the blob {uri}: give its store the `media_store` that it was written '
                'with.'
            )
        try:
            blob = await self.media_store.get(uri)
        except (MediaNotFoundError, MediaCorruptionError) as error:
            raise StoreCorruptionError('media', f'{owner} needs the blob {uri}: {error}') from error
        return blob if sealer is None else await _in_thread_if_large(len(blob), sealer.open_part, blob)


async def _cut(body: bytes, threshold: int | None, sealer: Sealer | None) -> tuple[bytes, list[Part]]:
    if sealer is None:
        return cut(body, threshold)
    return await _in_thread_if_large(len(body), cut, body, threshold, sealer)


async def _in_thread_if_large(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    if size < _IN_THREAD:
        return work(*arguments, **named)
    return await to_thread.run_sync(partial(work, *arguments, **named))


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
