"""The peer's store in MongoDB."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from harness_temporal.errors import ConfigurationError, RunImportError, StoreError, StoreUnavailableError
from harness_temporal.importers.messages import referenced, references, split_history
from harness_temporal.importers.source import Fields, SnapshotRow
from harness_temporal.lazy import needed_by

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.collection import AsyncCollection

_SOURCE = 'the source database'
_COLLECTIONS = ('runs', 'events', 'snapshots', 'tool_effects')
_PER_QUERY = 1000
"""How many messages to ask for at once: a query may have 16 MiB."""


class MongoSource:
    """Reads the collections that the peer's `MongoStepStore` wrote."""

    def __init__(self, db_url: str, database: str) -> None:
        self._db_url = db_url
        self._name = database
        self._client: AsyncMongoClient[dict[str, Any]] | None = None

    async def run_ids(self) -> Sequence[str]:
        found = set[str]()
        for name in _COLLECTIONS:
            key = '_id' if name == 'runs' else 'run_id'
            found.update(str(row['_id']) for row in await self._grouped(name, key))
        if not found:
            raise ConfigurationError(f'The database {self._name!r} has no step store in it.')
        return sorted(found)

    async def run(self, run_id: str) -> Fields | None:
        rows = await self._find('runs', {'_id': run_id})
        return rows[0] if rows else None

    async def events(self, run_id: str) -> Sequence[Fields]:
        return await self._find('events', {'run_id': run_id}, 'seq')

    async def tool_effects(self, run_id: str) -> Sequence[Fields]:
        # By id, an entry is where its call was first recorded: later records replace its values only.
        return await self._find('tool_effects', {'run_id': run_id}, '_id')

    async def snapshot_numbers(self, run_id: str) -> Sequence[int]:
        rows = await self._find('snapshots', {'run_id': run_id}, 'seq', projection=['seq'])
        return [cast(int, row['seq']) for row in rows]

    async def snapshot(self, run_id: str, number: int) -> SnapshotRow:
        rows = await self._find('snapshots', {'run_id': run_id, 'seq': number})
        if not rows:
            raise RunImportError(run_id, f'snapshot {number} was removed while it was read.')
        text = str(rows[0]['messages'])
        digests = references(text, run_id=run_id)
        if digests is None:
            return SnapshotRow(rows[0], split_history(text, run_id=run_id))
        stored = dict[str, str]()
        for start in range(0, len(digests), _PER_QUERY):
            some = digests[start : start + _PER_QUERY]
            found = await self._find('snapshot_messages', {'_id': {'$in': some}})
            stored |= {str(row['_id']): str(row['message']) for row in found}
        return SnapshotRow(rows[0], referenced(digests, stored, run_id=run_id))

    async def blob(self, digest: str) -> bytes | None:
        manifests = await self._find('media', {'_id': digest})
        if not manifests:
            return None
        # Chunks of another size may be beside them. Older ones do not say their size, nor does their manifest: `None`
        # finds what has none.
        query = {'files_id': digest, 'chunk_size': manifests[0].get('chunk_size')}
        return b''.join([cast(bytes, row['data']) for row in await self._find('media_chunks', query, 'n')])

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _find(
        self, name: str, query: Fields, sort: str | None = None, *, projection: list[str] | None = None
    ) -> Sequence[Fields]:
        with _translated():
            cursor = self._collection(name).find(query, projection)
            return await (cursor.sort(sort, 1) if sort else cursor).to_list()

    async def _grouped(self, name: str, key: str) -> Sequence[Fields]:
        with _translated():
            cursor = await self._collection(name).aggregate([{'$group': {'_id': f'${key}'}}])
            return await cursor.to_list()

    def _collection(self, name: str) -> AsyncCollection[dict[str, Any]]:
        from pymongo import AsyncMongoClient

        if self._client is None:
            self._client = AsyncMongoClient[dict[str, Any]](self._db_url)
        return self._client[self._name][name]


@contextmanager
def _translated() -> Generator[None]:
    with needed_by('Reading MongoDB', 'pymongo', 'mongo'):
        from bson.errors import BSONError
        from pymongo import errors
    try:
        yield
    except errors.ConnectionFailure as error:
        raise StoreUnavailableError(_SOURCE, f'it cannot be reached: {error}') from error
    except (errors.InvalidURI, errors.ConfigurationError) as error:
        raise ConfigurationError(f'The URL of the source is not one: {error}') from error
    except (errors.PyMongoError, BSONError) as error:
        raise StoreError(_SOURCE, str(error)) from error
