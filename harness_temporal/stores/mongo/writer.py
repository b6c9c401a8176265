"""The writes of the store: a plan's changes are one transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pymongo import DeleteMany, InsertOne, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from harness_temporal.databases.mongo import Database, Document
from harness_temporal.stores.mongo.indexes import INDEXES
from harness_temporal.stores.mongo.plan import Plan

_ORDER_OF_RUNS = '/runs'
"""The counter that says which run was registered before which. No run id has a slash."""

_OF_A_RUN = {
    'runs': '_id',
    'events': 'run_id',
    'snapshots': 'run_id',
    'snapshot_idempotency_keys': 'run_id',
    'tool_effects': 'run_id',
    'model_responses': '_id',
}
"""The collections and the field in which they have the run, but for its counter."""


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

    async def delete_runs(self, run_ids: Sequence[str], idle_since: int | None) -> bool | None:
        """Delete runs in one transaction; false if one was active since then, `None` if another writer was faster."""
        is_active = False

        async def work(opened: AsyncDatabase[Document], session: AsyncClientSession) -> bool:
            nonlocal is_active
            await delete_counters(opened, session, run_ids)
            is_active = idle_since is not None and await was_active(opened, session, run_ids, idle_since)
            if not is_active:
                await delete_of_runs(opened, session, run_ids)
            return not is_active

        if await self._database.transact(work):
            return True
        return False if is_active else None

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


async def delete_counters(
    database: AsyncDatabase[Document], session: AsyncClientSession, run_ids: Sequence[str]
) -> None:
    """Begin to delete runs. As in a commit the counters come first, so that what is read then is what is deleted."""
    await database['counters'].delete_many({'_id': {'$in': run_ids}}, session=session)


async def delete_of_runs(
    database: AsyncDatabase[Document], session: AsyncClientSession, run_ids: Sequence[str]
) -> None:
    """Delete all that runs have but their counters."""
    for collection, field in _OF_A_RUN.items():
        await database[collection].delete_many({field: {'$in': run_ids}}, session=session)


async def _apply(database: AsyncDatabase[Document], plan: Plan, session: AsyncClientSession) -> bool:
    """Make a plan's changes, or return false if a counter is not what the plan took it for."""
    # The counters first: from then on nobody else can change these runs.
    counters = [
        UpdateOne(
            {'_id': run_id, 'version': counter.version},
            {'$inc': {'version': 1}, '$set': {'next_seq': counter.next_seq}},
        )
        for run_id, counter in sorted(plan.counters.items())
        if counter.version
    ]
    # A version that no deleted run of this name has had, or a plan that was made before would fit this one too.
    new = [
        InsertOne({'_id': run_id, 'version': 1 + random.getrandbits(62), 'next_seq': counter.next_seq})
        for run_id, counter in sorted(plan.counters.items())
        if not counter.version
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


async def was_active(
    database: AsyncDatabase[Document], session: AsyncClientSession, run_ids: Sequence[str], since: int
) -> bool:
    """Whether anything happened in one of these runs since then."""
    lately = {'$gte': since}
    activity = {
        'runs': {'started_at': lately},
        'events': {'timestamp': lately},
        'snapshots': {'timestamp': lately},
        'tool_effects': {'$or': [{'ended_at': lately}, {'ended_at': None, 'started_at': lately}]},
    }
    for collection, condition in activity.items():
        query = {_OF_A_RUN[collection]: {'$in': run_ids}} | condition
        if await database[collection].find_one(query, projection=['_id'], session=session) is not None:
            return True
    return False
