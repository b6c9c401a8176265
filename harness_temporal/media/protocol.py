"""The contract of media stores.

`MediaStore` is what the rest of the package needs of one: the five methods of the step-persistence seed. The stores of
this package derive from `BaseMediaStore`, which adds streams and collection.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from harness_temporal.errors import MediaCorruptionError, MediaNotFoundError, NotStorableError
from harness_temporal.media.blob import Blob, StoredBlob, received
from harness_temporal.media.context import NO_CONTEXT, MediaContext, PublicUrlResolver
from harness_temporal.media.uri import digest_of, uri_of

TOUCH_INTERVAL: Final = timedelta(minutes=5)
"""A blob that is put again within this time need not be touched: collection spares it for much longer."""


@runtime_checkable
class MediaStore(Protocol):
    """Keeps blobs under the digest of their content. Putting the same bytes twice stores them once."""

    async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
        """Store bytes and return their URI. When it returns, they are there for every reader."""
        ...

    async def get(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bytes:
        """Return the bytes.

        Raises:
            InvalidMediaUriError: `uri` is none.
            MediaNotFoundError: The store does not hold them.
            MediaCorruptionError: What it holds is something else.
        """
        ...

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        """Whether the store holds the bytes. A store that cannot tell raises, and does not say no."""
        ...

    async def public_url(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> str | None:
        """Return a URL from which a model may fetch the bytes, or `None` if there is none."""
        ...

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        """Return the metadata with which the blob was put first.

        Raises:
            MediaNotFoundError: The store does not hold the blob.
        """
        ...


class BaseMediaStore(ABC):
    """What the stores share: digests, streams and URLs."""

    def __init__(self, *, public_url: PublicUrlResolver | None = None) -> None:
        self._public_url = public_url

    # --- for a store to implement ---

    @abstractmethod
    async def _write(self, blob: Blob, context: MediaContext) -> None:
        """Store a blob as a whole or not at all, or touch the one that is there and leave it as it is."""

    @abstractmethod
    def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        """Yield the stored bytes in pieces of bounded size.

        Raises:
            MediaNotFoundError: There are none.
        """

    @abstractmethod
    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool: ...

    @abstractmethod
    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]: ...

    @abstractmethod
    def blobs(self) -> AsyncGenerator[StoredBlob]:
        """Yield every blob, in no order. One that comes or goes meanwhile may be missing."""

    @abstractmethod
    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        """Delete a blob unless it was put since then, and return whether it was deleted."""

    async def delete_leftovers(self, *, untouched_since: datetime) -> int:
        """Delete what writers that died left of blobs before then, and return how much there was."""
        return 0

    async def aclose(self) -> None:  # noqa: B027  # most stores have nothing to release
        """Release what the store itself opened. A second call does nothing."""

    # --- shared ---

    async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
        _check(context)
        blob = Blob.of(data)
        await self._write(blob, context)
        return uri_of(blob.digest)

    async def put_stream(self, stream: AsyncIterable[bytes], *, context: MediaContext = NO_CONTEXT) -> str:
        """Store the bytes of a stream and return their URI, without holding all of them in memory.

        They go through a temporary file, because the digest that names them is known at their end.
        """
        _check(context)
        async with received(stream) as blob:
            await self._write(blob, context)
            return uri_of(blob.digest)

    async def get(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bytes:
        async with self.open(uri, context=context) as pieces:
            return b''.join([piece async for piece in pieces])

    @asynccontextmanager
    async def open(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a blob to read it in pieces, without holding all of it in memory.

        The last piece is given out when all of them have proved to be right: who gets to the end has the blob.

        Raises:
            InvalidMediaUriError: `uri` is none.
            MediaNotFoundError: The store does not hold it. Raised by the first piece, as the next error by the last.
            MediaCorruptionError: What the store holds is something else.
        """
        digest = digest_of(uri)
        async with aclosing(self._read(digest, context)) as pieces, aclosing(_verified(pieces, digest)) as verified:
            yield verified

    async def public_url(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> str | None:
        digest_of(uri)
        url = self._public_url(uri, context) if self._public_url is not None else None
        return await url if inspect.isawaitable(url) else url

    def _not_found(self, digest: str) -> MediaNotFoundError:
        return MediaNotFoundError(type(self).__name__, uri_of(digest))


async def _verified(pieces: AsyncIterator[bytes], digest: str) -> AsyncGenerator[bytes]:
    actual, held = hashlib.sha256(), b''
    async for piece in pieces:
        actual.update(piece)
        if held:
            yield held
        held = piece
    if actual.hexdigest() != digest:
        raise MediaCorruptionError(uri_of(digest), f'the stored bytes have the digest {actual.hexdigest()}.')
    if held:
        yield held


def _check(context: MediaContext) -> None:
    strings = (*context.metadata, *context.metadata.values())
    if not all(isinstance(value, str) for value in strings):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
        raise NotStorableError('MediaContext.metadata', 'it must map strings to strings.')
