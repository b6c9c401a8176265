"""The store: one transaction per change, in which the notebook's document comes first.

A note is named by the notebook's digest and its own name, so that the primary index has a notebook's notes together
and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from harness_temporal.lazy import needed_by
from harness_temporal.memory.notes import (
    OPERATIONS_KEPT,
    Edit,
    Glance,
    Note,
    Notebook,
    edited,
    revision_of,
)
from harness_temporal.memory.protocol import PAGE, MemoryStore
from harness_temporal.stores.mongo.documents import Document
from harness_temporal.stores.mongo.patience import until_done

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.asynchronous.database import AsyncDatabase

    from harness_temporal.databases.mongo import Database

STORE: Final = 'MongoMemoryStore'
_PATIENCE = 30.0
"""Seconds for which a change waits for others of the same notebook."""
_LONGEST_PAUSE = 0.2


class MongoMemoryStore(MemoryStore):
    """Keeps each note in a document. A change whose notebook another writer changed meanwhile is made again.

    Many processes may share the database, also with a `MongoStepStore` and other stores. For the servers that suit,
    the rights, the client and the event loop, see `MongoStepStore`.

    Args:
        client: A client, which stays open and whose own settings for reading and writing do not matter.
        db_url: Where the database is instead; the store makes a client of its own.
        database: The name of the database; or the open database of another store, with its client and its time-out,
            which stays open.
        timeout: How many seconds one request may take, see `MongoStepStore`.
    """

    def __init__(
        self,
        client: AsyncMongoClient[Any] | None = None,
        *,
        db_url: str | None = None,
        database: str | Database = 'harness_temporal',
        timeout: float = 30.0,
    ) -> None:
        with needed_by(f'`{STORE}`', 'pymongo', 'mongo'):
            from harness_temporal.databases.mongo import Database
            from harness_temporal.memory.mongo.indexes import INDEXES
        self._database = Database.of(client, db_url, database, timeout=timeout)
        self._is_shared = self._database is database
        self._indexes = INDEXES

    async def aclose(self) -> None:
        """Close the store, and its client unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._database.aclose()

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        # A document is read as a whole on the server, whose size a note's bounds; only names come of the others.
        named = _note(notebook, name)
        query = {'$and': [_notes_after(notebook, ''), {'_id': {'$ne': named}}]}
        [texts, others] = await asyncio.gather(
            self._database.find('memory_notes', {'_id': named}),
            self._database.find('memory_notes', query, fields=['_id'], sort={'_id': 1}, limit=max_names + 1),
        )
        data = texts[0]['text'].encode() if texts else None
        return Glance.of(data, [_name(document) for document in others], max_bytes=max_bytes, max_names=max_names)

    async def _read(self, notebook: Notebook, name: str) -> str | None:
        found = await self._database.find('memory_notes', {'_id': _note(notebook, name)})
        return found[0]['text'] if found else None

    async def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        last = ''
        while found := await self._database.find(
            'memory_notes', _notes_after(notebook, last), sort={'_id': 1}, limit=PAGE
        ):
            notes = [Note(_name(document), document['text']) for document in found]
            yield notes
            last = notes[-1].name

    async def forget(self, notebook: Notebook) -> None:
        async def work(opened: AsyncDatabase[Document], session: AsyncClientSession) -> bool:
            await opened['memory_notebooks'].delete_one({'_id': notebook.digest}, session=session)
            await opened['memory_notes'].delete_many(_notes_after(notebook, ''), session=session)
            await opened['memory_operations'].delete_many({'notebook': notebook.digest}, session=session)
            return True

        await self._transact(work)

    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        revision = ''

        async def work(opened: AsyncDatabase[Document], session: AsyncClientSession) -> bool:
            nonlocal revision
            revision = await _change(opened, session, notebook, name, edit, key)
            return True

        await self._transact(work)
        return revision

    async def _transact(self, work: Callable[[AsyncDatabase[Document], AsyncClientSession], Awaitable[bool]]) -> None:
        await self._database.make(self._indexes)
        await until_done(
            lambda: self._database.transact(work),
            seconds=_PATIENCE,
            store=STORE,
            what='the same notebook',
            longest_pause=_LONGEST_PAUSE,
        )


async def _change(
    opened: AsyncDatabase[Document],
    session: AsyncClientSession,
    notebook: Notebook,
    name: str,
    edit: Edit,
    key: str,
) -> str:
    # The notebook first: from then on nobody else can change it.
    operations = await _number(opened, session, notebook)
    notes, journal = opened['memory_notes'], opened['memory_operations']
    operation = {'_id': f'{notebook.digest}:{key}'}
    done = await journal.find_one(operation, session=session)
    if done is not None:
        return done['revision']
    place = {'_id': _note(notebook, name)}
    found = await notes.find_one(place, session=session)
    text = edited(name, None if found is None else found['text'], edit)
    if text is None:
        await notes.delete_one(place, session=session)
    else:
        await notes.replace_one(place, {'text': text}, upsert=True, session=session)
    revision = revision_of(text)
    await journal.insert_one(
        operation | {'notebook': notebook.digest, 'number': operations, 'revision': revision}, session=session
    )
    forgotten = {'notebook': notebook.digest, 'number': {'$lte': operations - OPERATIONS_KEPT}}
    await journal.delete_many(forgotten, session=session)
    return revision


async def _number(opened: AsyncDatabase[Document], session: AsyncClientSession, notebook: Notebook) -> int:
    """Number the next operation of a notebook, which is made if need be."""
    place = {'_id': notebook.digest}
    described = {'agent': notebook.agent, 'namespace': notebook.namespace}
    change = {'$inc': {'operations': 1}, '$setOnInsert': described}
    await opened['memory_notebooks'].update_one(place, change, upsert=True, session=session)
    held = await opened['memory_notebooks'].find_one(place, session=session)
    return 0 if held is None else held['operations']


def _note(notebook: Notebook, name: str) -> str:
    return f'{notebook.digest}:{name}'


def _name(document: Mapping[str, Any]) -> str:
    return document['_id'].partition(':')[2]


def _notes_after(notebook: Notebook, name: str) -> Document:
    # The semicolon is the character after the colon.
    return {'_id': {'$gt': _note(notebook, name), '$lt': f'{notebook.digest};'}}
