"""The store: in which order a blob's documents come and go.

Chunks come before their manifest and go after it, so whoever finds a manifest finds the whole blob. What a writer that
died left, or one that deleted, are chunks that no manifest names.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from harness_temporal.errors import ConfigurationError, MediaCorruptionError, StoreUnavailableError
from harness_temporal.lazy import needed_by
from harness_temporal.media.blob import CHUNK, Blob, StoredBlob
from harness_temporal.media.context import NO_CONTEXT, MediaContext, PublicUrlResolver
from harness_temporal.media.metadata import load_metadata
from harness_temporal.media.mongo.documents import (
    CHUNK_NAME,
    DIGEST,
    LARGEST,
    UPLOAD,
    Manifest,
    new_manifest,
    stored_blob,
    value,
)
from harness_temporal.media.protocol import TOUCH_INTERVAL, BaseMediaStore
from harness_temporal.media.uri import digest_of, uri_of
from harness_temporal.records import utc_now

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

    from harness_temporal.databases.mongo import Database

STORE = 'MongoMediaStore'
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*')
_LONGEST_NAME = 120
_SMALLEST_CHUNK = 1 << 10
_PAGE = 1000
"""Names that are asked for at a time."""


class MongoMediaStore(BaseMediaStore):
    """Keeps each blob as a manifest and the chunks that it names, of any number and size.

    Many processes may share the database, also with different `chunk_size_bytes`, and with a `MongoStepStore` and other
    stores. No indexes are made. For the servers that suit, the rights, the client and the event loop, see
    `MongoStepStore`.

    Args:
        client: A client, which stays open and whose own settings for reading and writing do not matter.
        db_url: Where the database is instead; the store makes a client of its own.
        database: The name of the database; or the open database of another store, with its client and its time-out,
            which stays open.
        collection: The name of the collection of manifests; that of the chunks has `_chunks` added.
        chunk_size_bytes: How many bytes of a blob go into one document, from 1 KiB to 15 MiB. The driver needs some
            times as much memory.
        public_url: Gives the URL from which a model may fetch a blob.
        timeout: How many seconds one request may take, see `MongoStepStore`.
    """

    def __init__(
        self,
        client: AsyncMongoClient[Any] | None = None,
        *,
        db_url: str | None = None,
        database: str | Database = 'harness_temporal',
        collection: str = 'media',
        chunk_size_bytes: int = 8 << 20,
        public_url: PublicUrlResolver | None = None,
        timeout: float = 30.0,
    ) -> None:
        super().__init__(public_url=public_url)
        if not _NAME.fullmatch(collection) or len(collection) > _LONGEST_NAME or collection.startswith('system.'):
            raise ConfigurationError(
                f'`collection` must be up to {_LONGEST_NAME} letters, digits, underscores and dashes, with dots '
                f'between, no digit or dash first, and not of `system`, got {collection[:200]!r}.'
            )
        if not _SMALLEST_CHUNK <= chunk_size_bytes <= LARGEST:
            raise ConfigurationError(
                f'`chunk_size_bytes` must be from {_SMALLEST_CHUNK} to {LARGEST}, got {chunk_size_bytes}.'
            )
        with needed_by(f'`{STORE}`', 'pymongo', 'mongo'):
            from harness_temporal.databases.mongo import Database
            from harness_temporal.media.mongo.collections import Chunks, Manifests
        self._database = Database.of(client, db_url, database, timeout=timeout)
        self._is_shared = self._database is database
        self._manifests = Manifests(self._database, collection)
        self._chunks = Chunks(self._database, f'{collection}_chunks')
        self._chunk_size = chunk_size_bytes

    async def aclose(self) -> None:
        """Close the store, and its client unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._database.aclose()

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        return await self._manifests.find(digest_of(uri), ['_id']) is not None

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        digest = digest_of(uri)
        found = await self._manifests.find(digest, ['metadata'])
        if found is None:
            raise self._not_found(digest)
        return load_metadata(value(found, 'metadata', str).encode(), uri)

    async def blobs(self) -> AsyncGenerator[StoredBlob]:
        last = b''
        while page := await self._manifests.page(last, _PAGE):
            for document in page:
                yield stored_blob(document)
            last = page[-1]['_id']

    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        deleted = await self._manifests.delete(digest, untouched_since)
        if deleted is None:
            return False
        await self._chunks.delete(value(deleted, 'upload', bytes))
        return True

    async def delete_leftovers(self, *, untouched_since: datetime) -> int:
        count, last = 0, bytes(CHUNK_NAME)
        while page := await self._chunks.page(last, _PAGE):
            uploads = {name[:UPLOAD] for name in page if len(name) == CHUNK_NAME}
            # A chunk that was listed is older than this question: what has no manifest now is none, or not yet one.
            uploads -= await self._manifests.uploads({upload[:DIGEST] for upload in uploads})
            for upload in uploads:
                # One young chunk spares the others, for a large upload takes its time.
                if not await self._chunks.written_since(upload, untouched_since):
                    count += await self._chunks.delete(upload)
            last = page[-1]
        return count

    async def _write(self, blob: Blob, context: MediaContext) -> None:
        manifest = new_manifest(blob, context, self._chunk_size)
        if await self._manifests.touch(blob.digest):
            return
        upload: bytes = manifest['upload']
        await self._upload(blob, upload)
        if await self._manifests.put(manifest) != upload:
            # Another writer of the same blob was faster: its chunks are the ones to keep.
            await self._chunks.delete(upload)

    async def _upload(self, blob: Blob, upload: bytes) -> None:
        written_at, index = utc_now(), 0
        async for data in blob.achunks(self._chunk_size):
            written_at = _soon_after(written_at)
            await self._chunks.add(upload, index, data, written_at)
            index += 1
        _soon_after(written_at)

    async def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        manifest, position = await self._manifest(digest), 0
        while position < manifest.size:
            index, skipped = divmod(position, manifest.chunk_size)
            data = await self._chunks.read(manifest.upload, index)
            if data is not None and len(data) > skipped:
                # In smaller pieces, as a reader has the last one still when the driver gets the next chunk.
                for start in range(skipped, len(data), CHUNK):
                    yield data[start : start + CHUNK]
                position += len(data) - skipped
                continue
            # The blob may have been deleted meanwhile, and put again: then another upload has the rest of it.
            before, manifest = manifest, await self._manifest(digest)
            if manifest.upload == before.upload:
                raise MediaCorruptionError(uri_of(digest), f'its chunk {index} is missing or damaged.')

    async def _manifest(self, digest: str) -> Manifest:
        found = await self._manifests.find(digest, ['size', 'upload', 'chunk_size'])
        if found is None:
            raise self._not_found(digest)
        return Manifest.of(found)


def _soon_after(written_at: datetime) -> datetime:
    """Return the time, unless so much has passed since the last chunk that the upload may have been collected.

    Raises:
        StoreUnavailableError: It may. The blob is not there, and to put it again is right.
    """
    now = utc_now()
    if now - written_at > TOUCH_INTERVAL:
        raise StoreUnavailableError(STORE, f'an upload was held up for {now - written_at}; it is not finished.')
    return now
