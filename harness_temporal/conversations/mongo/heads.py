"""The collection of heads: each change of it is one request or one transaction, on condition of a version."""

from __future__ import annotations

from typing import Literal

from pymongo import DESCENDING, IndexModel
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from harness_temporal.conversations.mongo.documents import HEADS, CurrentHead, fields_of
from harness_temporal.conversations.rules import Delete, Put
from harness_temporal.databases.mongo import Database, Document, Indexes
from harness_temporal.records import to_microseconds
from harness_temporal.stores.mongo.indexes import INDEXES as OF_RUNS
from harness_temporal.stores.mongo.writer import delete_counters, delete_of_runs, was_active
from harness_temporal.text import escape

INDEXES: Indexes = {
    **OF_RUNS,
    HEADS: [
        IndexModel([('updated_at', DESCENDING), ('_id', 1)]),
        # It finds what has a link.
        IndexModel([('head', 1)], partialFilterExpression={'head': {'$type': 'binData'}}),
    ],
}


class Heads:
    """Writes to the collection, and to those of the runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_collections(self) -> None:
        """Make what the first write needs."""
        await self._database.make(INDEXES)

    async def current(self, key: bytes) -> CurrentHead | None:
        """Return what a writer starts from."""
        found = await self._database.find(HEADS, {'_id': key}, fields=['version', 'metadata'])
        return CurrentHead.of(found[0]) if found else None

    async def put(self, key: bytes, expected: bytes | None, put: Put, version: bytes) -> bool:
        """Write a head; false, and nothing of it, if another version than the expected one is there."""
        fields = fields_of(put, version)
        if expected is None:
            return await self._database.use(lambda opened: _insert(opened, {'_id': key} | fields))
        update: Document = {'$set': fields}
        if put.content is not None and 'head' not in fields:
            update['$unset'] = {'head': ''}
        query = {'_id': key, 'version': expected}
        result = await self._database.use(lambda opened: opened[HEADS].update_one(query, update))
        return bool(result.matched_count)

    async def delete(self, key: bytes, expected: bytes, delete: Delete) -> Literal['deleted', 'moved', 'spared']:
        """Delete a head and its runs. `moved`: another version is there. `spared`: the runs give a reason not to."""
        outcome: Literal['deleted', 'moved', 'spared'] = 'moved'

        async def work(opened: AsyncDatabase[Document], session: AsyncClientSession) -> bool:
            nonlocal outcome
            outcome = 'moved'
            deleted = await opened[HEADS].delete_many({'_id': key, 'version': expected}, session=session)
            if not deleted.deleted_count:
                return False
            run_ids = await _runs_of(opened, session, delete.conversation_id)
            await delete_counters(opened, session, run_ids)
            if await _is_spared(opened, session, run_ids, delete):
                outcome = 'spared'
                return False
            await delete_of_runs(opened, session, run_ids)
            return True

        return 'deleted' if await self._database.transact(work) else outcome


async def _insert(database: AsyncDatabase[Document], document: Document) -> bool:
    try:
        await database[HEADS].insert_one(document)
    except DuplicateKeyError:
        return False
    return True


async def _runs_of(database: AsyncDatabase[Document], session: AsyncClientSession, conversation_id: str) -> list[str]:
    # The type is what the index is limited to, so that the server sees that it can use it.
    query = {'conversation_id': {'$eq': escape(conversation_id), '$type': 'string'}}
    return [item['_id'] for item in await database['runs'].find(query, projection=['_id'], session=session).to_list()]


async def _is_spared(
    database: AsyncDatabase[Document], session: AsyncClientSession, run_ids: list[str], delete: Delete
) -> bool:
    if delete.spare_unresolved:
        query = {'run_id': {'$in': run_ids}, 'status': 'started'}
        if await database['tool_effects'].find_one(query, projection=['_id'], session=session) is not None:
            return True
    since = delete.idle_since
    return since is not None and await was_active(database, session, run_ids, to_microseconds(since))
