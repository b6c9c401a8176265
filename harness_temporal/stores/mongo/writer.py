"""The writes of the store: a plan's changes are one transaction."""

from __future__ import annotations

from pymongo import DeleteMany, InsertOne, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from harness_temporal.databases.mongo import Database, Document
from harness_temporal.stores.mongo.indexes import INDEXES
from harness_temporal.stores.mongo.plan import Plan

_ORDER_OF_RUNS = '/runs'
"""The counter that says which run was registered before which. No run id has a slash."""


class Writer:
    """Writes to the collections of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_collections(self) -> None:
        """Make what the first write needs."""
        await self._database.make(INDEXES)

    async def commit(self, plan: Plan) -> bool:
        """Make a plan's changes in one transaction; false, and none of them, if another writer was faster."""
        return await self._database.transact(lambda opened, session: _apply(opened, plan, session))

    async def draw_registrations(self, count: int) -> int:
        """Return the first of `count` numbers that nobody else gets. Later ones are larger."""
        drawn = await self._database.use(
            lambda opened: opened['counters'].find_one_and_update(
                {'_id': _ORDER_OF_RUNS},
                {'$inc': {'next_seq': count}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        )
        return drawn['next_seq'] - count + 1 if drawn else 1


async def _apply(database: AsyncDatabase[Document], plan: Plan, session: AsyncClientSession) -> bool:
    """Make a plan's changes, or return false if a counter is not what the plan took it for."""
    # The counters first: from then on nobody else can change these runs.
    counters = [
        UpdateOne(
            {'_id': run_id, 'version': counter.version - 1},
            {'$set': {'version': counter.version, 'next_seq': counter.next_seq}},
        )
        for run_id, counter in sorted(plan.counters.items())
        if plan.held.counters[run_id].version
    ]
    new = [
        InsertOne({'_id': run_id, 'version': counter.version, 'next_seq': counter.next_seq})
        for run_id, counter in sorted(plan.counters.items())
        if not plan.held.counters[run_id].version
    ]
    result = await database['counters'].bulk_write([*counters, *new], session=session)
    if result.matched_count != len(counters):
        return False
    for collection, names in plan.deletions.items():
        if names:
            await database[collection].bulk_write([DeleteMany({'_id': {'$in': names}})], session=session)
    for collection, documents in plan.inserts.items():
        if documents:
            await database[collection].insert_many(documents, session=session)
    for collection, replaced in plan.replacements.items():
        operations = [ReplaceOne({'_id': name}, document, upsert=True) for name, document in replaced.items()]
        await database[collection].bulk_write(operations, session=session)
    return True
