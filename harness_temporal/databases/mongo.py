"""A database of MongoDB: its client, its transactions, and what its errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import AsyncMongoClient, ReadPreference
from pymongo import errors as mongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from harness_temporal.errors import (
    ConfigurationError,
    HarnessError,
    NotStorableError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreUnavailableError,
)

T = TypeVar('T')
DATABASE: Final = 'MongoDB'
Document: TypeAlias = dict[str, Any]
Indexes: TypeAlias = Mapping[str, Sequence[pymongo.IndexModel]]
"""By collection. One that is only asked by identity has an empty sequence."""

_INDEX_TIMEOUT = 600.0
"""Seconds for the indexes, which take long where the collections are full. A build that is cut off starts anew."""
_ASKED_AT_ONCE = 250
_COMMITS = 5
"""How often a commit is sent whose answer is lost."""
_OLDEST_WIRE_VERSION = 13
"""MongoDB 5.0: the first that reads from a snapshot outside of a transaction."""

_SNAPSHOT = ReadConcern('snapshot')
_MAJORITY = WriteConcern('majority')
_DUPLICATE_KEY = 11000
_NOT_ALLOWED = (13, 18, 8000)
_OTHER_INDEX = (67, 85, 86)
_TOO_LARGE = (10334, 17280, 17419, 17420)
_SNAPSHOT_UNAVAILABLE = 246
"""The server cannot read from a snapshot at the moment, for example while it makes a collection."""


class Database:
    """One database of a client. Belongs to one event loop; nothing is sent before the first use."""

    def __init__(self, client: AsyncMongoClient[Any] | None, db_url: str | None, name: str, *, timeout: float) -> None:
        if (client is None) == (db_url is None):
            raise ConfigurationError('Give either `client` or `db_url`.')
        if timeout <= 0:
            raise ConfigurationError(f'`timeout` must be more than 0, got {timeout}.')
        self._db_url = db_url
        self._client: AsyncMongoClient[Any] | None = client
        self._name = name
        self._timeout = timeout
        self._opened: AsyncDatabase[Document] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._made = set[str]()
        self._is_closed = False

    @classmethod
    def of(
        cls, client: AsyncMongoClient[Any] | None, db_url: str | None, database: str | Database, *, timeout: float
    ) -> Database:
        """Return the database of that name, or the given one, which is another store's."""
        if not isinstance(database, Database):
            return cls(client, db_url, database, timeout=timeout)
        if client is not None or db_url is not None:
            raise ConfigurationError('An open `database` has its client: give neither `client` nor `db_url`.')
        return database

    async def aclose(self) -> None:
        """Close for good; a given client stays open."""
        if self._db_url is not None and self._client is not None and not self._is_closed:
            self._check_usable()
            with _translated(self._timeout):
                await self._client.close()
        self._is_closed = True

    async def find(
        self,
        collection: str,
        query: Mapping[str, Any],
        *,
        fields: Sequence[str] | None = None,
        sort: Mapping[str, int] | None = None,
        limit: int | None = None,
        skip: int = 0,
    ) -> list[Document]:
        """Return documents as they were at one moment, after every write that was acknowledged."""
        if limit is not None and limit <= 0:
            return []
        with _translated(self._timeout):
            found = (await self._open())[collection]
            # More than a server counts to is as good as no limit.
            bounded = limit if limit is not None and limit < 2**31 else 0
            cursor = found.find(query, projection=fields, sort=sort, limit=bounded, skip=skip)
            return await cursor.to_list()

    async def named(
        self, collection: str, names: Iterable[Any], *, fields: Sequence[str] | None = None
    ) -> dict[Any, Document]:
        """Return the documents with these identities, however many, each as it was at a moment of its own."""
        rest = list(names)
        found: dict[Any, Document] = {}
        while rest:
            asked, rest = rest[:_ASKED_AT_ONCE], rest[_ASKED_AT_ONCE:]
            documents = await self.find(collection, {'_id': {'$in': asked}}, fields=fields)
            found |= {document['_id']: document for document in documents}
        return found

    async def counts(self, collection: str, field: str, values: Sequence[bytes]) -> dict[bytes, int]:
        """Return how many documents have each of these bytes in a field, without those that none has."""
        # The type is what some indexes are limited to, so that the server sees that it can use them.
        matching = {'$match': {field: {'$in': list(values), '$type': 'binData'}}}
        counting = {'$group': {'_id': f'${field}', 'count': {'$sum': 1}}}
        with _translated(self._timeout):
            cursor = await (await self._open())[collection].aggregate([matching, counting])
            return {item['_id']: item['count'] for item in await cursor.to_list()}

    async def insert(self, collection: str, document: Document) -> None:
        """Insert a document."""
        with _translated(self._timeout):
            await (await self._open())[collection].insert_one(document)

    async def put(self, collection: str, documents: Iterable[Document], *, touched_at: int) -> None:
        """Insert the documents that are not there, in this order, and touch those that are. May do a part and fail."""
        operations = [
            pymongo.UpdateOne(
                {'_id': document['_id']},
                {
                    '$setOnInsert': {name: value for name, value in document.items() if name != '_id'},
                    '$max': {'touched_at': touched_at},
                },
                upsert=True,
            )
            for document in documents
        ]
        with _translated(self._timeout):
            target = (await self._open())[collection]
            while operations:
                try:
                    await target.bulk_write(operations)
                    return
                except mongo.BulkWriteError as error:
                    if _codes(error) != {_DUPLICATE_KEY}:
                        raise
                    # Another writer came between the server's search and its insert. Now there is one to find.
                    operations = operations[_first_error(error) :]

    async def touch(self, collection: str, names: Sequence[Any], *, touched_at: int) -> bool:
        """Note that documents were used; false if one of them is not there."""
        # Not to an earlier time, which the clock of another machine may give.
        touched = {'$max': {'touched_at': touched_at}}
        with _translated(self._timeout):
            target = (await self._open())[collection]
            # Not one update of many, which a driver does not repeat when the primary changes.
            result = await target.bulk_write([pymongo.UpdateOne({'_id': name}, touched) for name in names])
            return result.matched_count == len(names)

    async def delete(self, collection: str, query: Mapping[str, Any]) -> int:
        """Delete documents, each by itself, and return how many."""
        with _translated(self._timeout):
            return (await (await self._open())[collection].delete_many(query)).deleted_count

    async def use(self, work: Callable[[AsyncDatabase[Document]], Awaitable[T]]) -> T:
        """Do one thing with the database."""
        with _translated(self._timeout):
            return await work(await self._open())

    async def make(self, indexes: Indexes) -> None:
        """Make collections and their indexes. Safe when many processes do it at once."""
        if self._made >= indexes.keys():
            return
        with _translated(self._timeout):
            database = await self._open()
        with _translated(_INDEX_TIMEOUT):
            async with self._opening:
                for collection, models in indexes.items():
                    if models:
                        await self._make(database[collection], models)
                present = await database.list_collection_names()
                for collection in indexes.keys() - present:
                    await _create(database, collection)
                self._made |= indexes.keys()

    async def transact(self, work: Callable[[AsyncDatabase[Document], AsyncClientSession], Awaitable[bool]]) -> bool:
        """Do `work` in one transaction; false, and nothing of it, if it says so or another writer was faster."""
        with _translated(self._timeout):
            database = await self._open()
            async with database.client.start_session(causal_consistency=False) as session:
                try:
                    await session.start_transaction(_SNAPSHOT, _MAJORITY, ReadPreference.PRIMARY)
                    # What leaves this block without a commit is rolled back with the end of the session.
                    return await work(database, session) and await _commit(session)
                except (mongo.OperationFailure, mongo.ConnectionFailure) as error:
                    if not _lost_a_race(error):
                        raise
                    return False

    async def _open(self) -> AsyncDatabase[Document]:
        self._check_usable()
        if self._opened is not None:
            return self._opened
        client: AsyncMongoClient[Any] = self._client or AsyncMongoClient(self._db_url, appname='harness-temporal')
        self._client = client
        hello = await client.admin.command('hello')
        if not (hello.get('setName') or hello.get('msg') == 'isdbgrid'):
            raise StoreError(
                DATABASE,
                'the server is a standalone one, which has no transactions. Make it a replica set, of one member if '
                'need be: start `mongod` with `--replSet rs0` and call `rs.initiate()` once.',
            )
        if hello.get('maxWireVersion', 0) < _OLDEST_WIRE_VERSION:
            raise StoreError(DATABASE, 'the server is older than MongoDB 5.0.')
        # Everything is set here, so that the client's own settings do not matter.
        self._opened = client.get_database(
            self._name, CodecOptions(dict[str, Any]), ReadPreference.PRIMARY, _MAJORITY, read_concern=_SNAPSHOT
        )
        return self._opened

    async def _make(self, collection: AsyncCollection[Document], indexes: Sequence[pymongo.IndexModel]) -> None:
        try:
            await collection.create_indexes(indexes)
        except mongo.OperationFailure as error:
            what = f'the indexes of `{self._name}.{collection.name}` cannot be made'
            if error.code in _NOT_ALLOWED:
                raise StoreError(DATABASE, f'{what}: the user needs the right `createIndex`. ({error})') from error
            if error.code == _DUPLICATE_KEY:
                raise StoreSchemaError(DATABASE, f'{what}: what is there has duplicates. ({error})') from error
            if error.code in _OTHER_INDEX:
                raise StoreSchemaError(DATABASE, f'{what}: another one is in the way. ({error})') from error
            raise

    def _check_usable(self) -> None:
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise _other_loop()
        if self._is_closed:
            raise StoreError(DATABASE, 'the store is closed.')


async def _create(database: AsyncDatabase[Document], collection: str) -> None:
    try:
        await database.create_collection(collection, check_exists=False)
    except mongo.OperationFailure as error:
        if error.code != 48:  # Another process made it.
            raise


async def _commit(session: AsyncClientSession) -> bool:
    for attempt in range(_COMMITS):
        try:
            await session.commit_transaction()
            break
        except mongo.PyMongoError as error:
            if attempt == _COMMITS - 1 or not error.has_error_label('UnknownTransactionCommitResult'):
                raise
    return True


def _lost_a_race(error: mongo.PyMongoError) -> bool:
    """Whether another writer changed the same, or the transaction ended in another way that a new one would mend."""
    if isinstance(error, mongo.ServerSelectionTimeoutError) or error.timeout:
        return False
    return error.has_error_label('TransientTransactionError') or _DUPLICATE_KEY in _codes(error)


def _codes(error: mongo.PyMongoError) -> set[int | None]:
    if isinstance(error, mongo.BulkWriteError):
        details: Mapping[str, Any] = error.details or {}
        return {item.get('code') for item in (*details['writeErrors'], *details['writeConcernErrors'])}
    return {error.code} if isinstance(error, mongo.OperationFailure) else set()


def _first_error(error: mongo.BulkWriteError) -> int:
    details: Mapping[str, Any] = error.details or {}
    return details['writeErrors'][0]['index']


def _other_loop() -> StoreLoopError:
    return StoreLoopError(
        DATABASE,
        'its client belongs to another event loop. Make one store (and client) per event loop, and close it there.',
    )


@contextmanager
def _translated(seconds: float) -> Generator[None]:
    """Bound the time, and turn what pymongo raises into errors of this package."""
    try:
        with pymongo.timeout(seconds):
            yield
    except (mongo.PyMongoError, BSONError, OverflowError, OSError) as error:
        raise _meaning(error) from error
    except RuntimeError as error:
        if 'event loop' not in str(error):
            raise
        raise _other_loop() from error


def _meaning(error: Exception) -> HarnessError:
    reason = str(error) or type(error).__name__
    if not isinstance(error, mongo.PyMongoError):
        if isinstance(error, OSError):
            return StoreUnavailableError(DATABASE, f'{reason}.')
        return NotStorableError('A record', f'it does not fit into a document of MongoDB: {reason}.')
    codes = _codes(error)
    if isinstance(error, mongo.DocumentTooLarge) or codes & {*_TOO_LARGE}:
        return NotStorableError('A record', f'it does not fit into a document of MongoDB: {reason}.')
    if isinstance(error, mongo.ConfigurationError):
        return ConfigurationError(f'The `client` or `db_url` cannot be used: {reason}.')
    if codes & {*_NOT_ALLOWED}:
        return StoreError(DATABASE, f'the user of the database may not do this: {reason}.')
    passing = any(
        error.has_error_label(label)
        for label in ('TransientTransactionError', 'UnknownTransactionCommitResult', 'RetryableWriteError')
    )
    passing = passing or _SNAPSHOT_UNAVAILABLE in codes
    if isinstance(error, mongo.ConnectionFailure) or error.timeout or passing:
        return StoreUnavailableError(DATABASE, f'{reason}.')
    return StoreError(DATABASE, f'{reason}.')
