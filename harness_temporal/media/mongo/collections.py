"""What is asked of the two collections. Each call is one request, and what it does happens as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo import ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from harness_temporal.databases.mongo import Database
from harness_temporal.media.mongo.documents import Document, chunk_name, value
from harness_temporal.records import to_microseconds, utc_now

_LAST_INDEX = 2**32 - 1


class Manifests:
    """The collection of manifests. A blob is there when its manifest is."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name

    async def touch(self, digest: str) -> bool:
        """Note that the blob was put now; false if there is none."""
        # Not to an earlier time, which the clock of another machine may give.
        touched = {'$max': {'touched_at': to_microseconds(utc_now())}}
        result = await self._database.use(
            lambda opened: opened[self._name].update_one({'_id': bytes.fromhex(digest)}, touched)
        )
        return bool(result.matched_count)

    async def put(self, manifest: Document) -> bytes:
        """Insert a manifest, or touch the one that is there. Return the upload of the one that is there then."""
        return await self._database.use(lambda opened: self._put(opened, manifest))

    async def find(self, digest: str, fields: Sequence[str]) -> Document | None:
        """Return fields of a manifest."""
        found = await self._database.find(self._name, {'_id': bytes.fromhex(digest)}, fields=fields)
        return found[0] if found else None

    async def page(self, after: bytes, limit: int) -> list[Document]:
        """Return the next manifests, without what users said about the blobs."""
        return await self._database.find(
            self._name, {'_id': {'$gt': after}}, fields=['size', 'touched_at'], sort={'_id': 1}, limit=limit
        )

    async def uploads(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return the uploads that the manifests of these blobs name."""
        found = await self._database.find(self._name, {'_id': {'$in': list(digests)}}, fields=['upload'])
        return {value(item, 'upload', bytes) for item in found}

    async def delete(self, digest: str, untouched_since: datetime) -> Document | None:
        """Delete a manifest that was not touched since, and return its upload."""
        query = {'_id': bytes.fromhex(digest), 'touched_at': {'$lt': to_microseconds(untouched_since)}}
        return await self._database.use(
            lambda opened: opened[self._name].find_one_and_delete(query, projection=['upload'])
        )

    async def _put(self, opened: AsyncDatabase[Document], manifest: Document) -> bytes:
        # Without its name, which the query gives: only then does a server try again of itself when it is beaten.
        fields = {field: given for field, given in manifest.items() if field != '_id'}
        touched = {'$max': {'touched_at': to_microseconds(utc_now())}, '$setOnInsert': fields}

        async def request() -> Document | None:
            return await opened[self._name].find_one_and_update(
                {'_id': manifest['_id']},
                touched,
                upsert=True,
                projection=['upload'],
                return_document=ReturnDocument.AFTER,
            )

        try:
            found = await request()
        except DuplicateKeyError:
            # It does not always: another one came between its search and its insert. Now there is one to find.
            found = await request()
        return value(manifest if found is None else found, 'upload', bytes)


class Chunks:
    """The collection of chunks."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name

    async def add(self, upload: bytes, index: int, data: bytes, written_at: datetime) -> None:
        """Insert a chunk."""
        chunk = {'_id': chunk_name(upload, index), 'data': data, 'written_at': to_microseconds(written_at)}
        await self._database.use(lambda opened: opened[self._name].insert_one(chunk))

    async def read(self, upload: bytes, index: int) -> bytes | None:
        """Return the bytes of a chunk, if it is there and has any."""
        for chunk in await self._database.find(self._name, {'_id': chunk_name(upload, index)}, fields=['data']):
            data = chunk.get('data')
            return data if isinstance(data, bytes) else None
        return None

    async def delete(self, upload: bytes) -> int:
        """Delete the chunks of an upload, and return how many there were."""
        result = await self._database.use(lambda opened: opened[self._name].delete_many(_all_of(upload)))
        return result.deleted_count

    async def written_since(self, upload: bytes, moment: datetime) -> bool:
        """Whether a chunk of the upload was written since."""
        query = _all_of(upload) | {'written_at': {'$gte': to_microseconds(moment)}}
        return bool(await self._database.find(self._name, query, fields=['_id'], limit=1))

    async def page(self, after: bytes, limit: int) -> list[bytes]:
        """Return the names of the next chunks. Only the index of names is read for it."""
        found = await self._database.find(
            self._name, {'_id': {'$gt': after}}, fields=['_id'], sort={'_id': 1}, limit=limit
        )
        return [item['_id'] for item in found]


def _all_of(upload: bytes) -> Document:
    return {'_id': {'$gte': chunk_name(upload, 0), '$lte': chunk_name(upload, _LAST_INDEX)}}
