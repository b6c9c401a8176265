"""Deletes histories and messages that nothing has, and finds out which blobs are in use.

Content is written before the transaction that refers to it, and what is there already is not written again. Why nothing
that a snapshot has is lost all the same, however the steps of writers and collectors mix:

- Who makes a reference (of a snapshot, a conversation or a link to a link; of a link, a tool effect or a response to a
  message) has touched what it refers to before: has inserted it or, if it was there, has set its `touched_at`. A touch
  that finds nothing makes the writer look again at what is there.
- A collector looks for references first and deletes then, and that nothing touched it since the cutoff is a condition
  of the delete itself. A reference that it did not see was made after it looked, by a writer that had touched what it
  refers to, and after the cutoff: a writer takes much less time for that than the grace, with the difference of two
  machines' clocks. If the touch was before the delete, nothing is deleted. If it was after, it found nothing.
- So a link that is there has its parent and its message there: a link goes after those that follow it, and a message
  after the links to it. By and by this holds for the whole history, and a writer may trust a link that it touched.
- Links of one history are deleted in one transaction, which must find all of them untouched. A writer that touches one
  of them meanwhile waits for its end or makes it fail. In a request without a transaction, a link could stay and its
  parent go.

In which order a message's possible references are looked for does not matter, because each is preceded by a touch.
A collector that dies leaves links without followers and messages without links, which the next one finds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from harness_temporal.databases.mongo import Database
from harness_temporal.stores.external import digests_in
from harness_temporal.stores.mongo.content import DIGEST, LINKS, Content
from harness_temporal.stores.mongo.documents import Document
from harness_temporal.stores.mongo.messages import CHUNKS, MESSAGES, Messages, read_whole, upload_of

_PAGE = 500
"""Names that are asked for at a time, without what they name."""
_BODIES = 16
"""Bodies that are read at a time."""
_TAIL = 256
"""Links that are deleted at a time."""
_HEADS = ('snapshots', 'conversation_heads')
"""What refers to whole histories."""
_REFERENCES = ((LINKS, 'message'), ('tool_effects', 'value_digest'), ('model_responses', 'body_digest'))
"""What refers to messages."""


class Collector:
    """Collects in the collections of `Content` and `Messages`. Any number of processes may do it at once."""

    def __init__(self, database: Database, messages: Messages, content: Content) -> None:
        self._database = database
        self._messages = messages
        self._content = content

    async def collect(self, untouched_since: int) -> int:
        """Delete what nothing has and nobody touched since then, and return how many links it was."""
        count = 0
        async for page in self._pages(LINKS):
            for digest in await self._without_followers(page):
                count += await self._collect_links(digest, untouched_since)
        async for page in self._pages(MESSAGES):
            await self._collect_messages(page, untouched_since)
        async for page in self._pages(CHUNKS):
            await self._collect_chunks(page, untouched_since)
        return count

    async def media_references(self) -> AsyncGenerator[str]:
        """Yield the digests of the blobs that messages, tool effects and responses refer to."""
        digest = b''
        while messages := await self._external_messages(digest):
            for body in messages.values():
                for reference in digests_in(body):
                    yield reference
            digest = [*messages][-1]
        for collection, field in (('tool_effects', 'value'), ('model_responses', 'body')):
            name = ''
            while found := await self._external(collection, name):
                for document in found:
                    for reference in digests_in(document.get(field)):
                        yield reference
                name = found[-1]['_id']

    async def _pages(self, collection: str) -> AsyncGenerator[list[bytes]]:
        """Yield all names of a collection. Only the index of names is read for it."""
        after = b''
        while page := await self._database.find(
            collection, {'_id': {'$gt': after}}, fields=['_id'], sort={'_id': 1}, limit=_PAGE
        ):
            after = page[-1]['_id']
            yield [item['_id'] for item in page]

    # --- links ---

    async def _without_followers(self, digests: list[bytes]) -> list[bytes]:
        heads = await self._heads(digests)
        parents = await self._database.counts(LINKS, 'parent', digests)
        return [digest for digest in digests if digest not in heads and digest not in parents]

    async def _collect_links(self, head: bytes | None, untouched_since: int) -> int:
        """Delete a link and those before it, as far as nothing else has them, and return how many."""
        count = 0
        while head is not None:
            tail = await self._content.tail(head, _TAIL)
            loose = await self._loose(tail, untouched_since)
            if not loose or not await self._delete_links(loose, untouched_since):
                break
            count += len(loose)
            head = tail[-1].get('parent') if len(loose) == len(tail) else None
        return count

    async def _loose(self, tail: list[Document], untouched_since: int) -> list[bytes]:
        """Return those links at the end of a history that nothing has but the one after them."""
        digests = [link['_id'] for link in tail]
        heads = await self._heads(digests)
        followers = await self._database.counts(LINKS, 'parent', digests)
        loose: list[bytes] = []
        for link in tail:
            digest = link['_id']
            expected = 1 if loose else 0
            if digest in heads or followers.get(digest, 0) != expected or link['touched_at'] >= untouched_since:
                break
            loose.append(digest)
        return loose

    async def _heads(self, digests: list[bytes]) -> set[bytes]:
        """Return those of these links that a snapshot or a conversation ends at."""
        counts = [await self._database.counts(collection, 'head', digests) for collection in _HEADS]
        return {digest for found in counts for digest in found}

    async def _delete_links(self, digests: list[bytes], untouched_since: int) -> bool:
        query = {'_id': {'$in': digests}, 'touched_at': {'$lt': untouched_since}}

        async def work(opened: AsyncDatabase[Document], session: AsyncClientSession) -> bool:
            result = await opened[LINKS].delete_many(query, session=session)
            return result.deleted_count == len(digests)

        return await self._database.transact(work)

    # --- messages ---

    async def _collect_messages(self, digests: list[bytes], untouched_since: int) -> None:
        loose = digests
        for collection, field in _REFERENCES:
            referred = await self._database.counts(collection, field, loose)
            loose = [digest for digest in loose if digest not in referred]
        if loose:
            await self._database.delete(MESSAGES, {'_id': {'$in': loose}, 'touched_at': {'$lt': untouched_since}})

    async def _collect_chunks(self, names: list[bytes], untouched_since: int) -> None:
        """Delete chunks that no message names: those of deleted messages, and what writers left that died or lost."""
        digests = {name[:DIGEST] for name in names}
        messages = await self._database.named(MESSAGES, digests, fields=['upload'])
        uploads = {message.get('upload') for message in messages.values()}
        loose = [name for name in names if upload_of(name) not in uploads]
        if loose:
            await self._database.delete(CHUNKS, {'_id': {'$in': loose}, 'written_at': {'$lt': untouched_since}})

    # --- blobs ---

    async def _external_messages(self, after: bytes) -> dict[bytes, bytes]:
        return await read_whole(lambda: self._external(MESSAGES, after), self._messages.whole)

    async def _external(self, collection: str, after: bytes | str) -> list[Document]:
        query = {'external': True, '_id': {'$gt': after}}
        return await self._database.find(collection, query, sort={'_id': 1}, limit=_BODIES)
