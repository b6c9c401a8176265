"""Bodies by their digests: messages, and large values of records, which are kept like messages.

A body that is too large for one document is in chunks that its document names. They come before it and are named by the
upload that wrote them: two writers of one body never share a chunk, and neither can lose one to a collector that
deletes what the other left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from harness_temporal.errors import StoreCorruptionError
from harness_temporal.history import stored_message
from harness_temporal.records import StoredMessage
from harness_temporal.stores.external import is_external
from harness_temporal.stores.mongo.documents import STORE, Document

if TYPE_CHECKING:
    from harness_temporal.databases.mongo import Database

T = TypeVar('T')
MESSAGES: Final = 'messages'
CHUNKS: Final = 'message_chunks'
_CHUNK = 8 << 20
"""Bytes of a body per document, which has at most 16 MiB."""
_INDEX = 4
"""Bytes of a chunk's name that say its place in the upload."""


class Messages:
    """The collections `messages` and `message_chunks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, messages: Iterable[StoredMessage], *, touched_at: int) -> None:
        """Store the bodies that are not here, and touch those that are."""
        documents: list[Document] = []
        for message in messages:
            # What a collector of blobs looks for; a server cannot ask for the first byte of a body.
            document: Document = {'_id': message.digest} | ({'external': True} if is_external(message.body) else {})
            if len(message.body) <= _CHUNK:
                documents.append(document | {'body': message.body})
            elif not await self._database.touch(MESSAGES, [message.digest], touched_at=touched_at):
                documents.append(document | await self._upload(message, touched_at))
        await self._database.put(MESSAGES, documents, touched_at=touched_at)

    async def bodies(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return stored bodies by their digests.

        Raises:
            StoreCorruptionError: One is missing.
        """
        wanted = set(digests)
        documents = await self._database.named(MESSAGES, wanted)
        for digest in wanted - documents.keys():
            raise _missing(digest)
        return await self.whole(documents.values())

    async def whole(self, documents: Collection[Document]) -> dict[bytes, bytes]:
        """Return the bodies of messages that were found, by their digests and in the same order.

        Raises:
            StoreCorruptionError: A chunk is missing.
        """
        names = {document['_id']: _chunks(document) for document in documents}
        chunks = await self._database.named(CHUNKS, [name for of_one in names.values() for name in of_one])
        found: dict[bytes, bytes] = {}
        for document in documents:
            digest: bytes = document['_id']
            if not all(name in chunks for name in names[digest]):
                raise _missing(digest)
            found[digest] = document.get('body', b'') + b''.join(chunks[name]['body'] for name in names[digest])
        return found

    async def filled(self, documents: Sequence[Document], name: str) -> list[Document]:
        """Return the documents of records with the values that are kept like messages put back into them.

        Raises:
            StoreCorruptionError: One is missing or damaged.
        """
        digest_name = f'{name}_digest'
        bodies = await self.bodies(document[digest_name] for document in documents if digest_name in document)
        for digest, body in bodies.items():
            if stored_message(body).digest != digest:
                raise StoreCorruptionError(STORE, f'the {name} {digest.hex()} is damaged.')
        return [
            document | {name: bodies[document[digest_name]]} if digest_name in document else document
            for document in documents
        ]

    async def _upload(self, message: StoredMessage, written_at: int) -> Document:
        """Store the chunks of a body, and return what its document says of them."""
        upload = message.digest + uuid4().bytes
        starts = range(0, len(message.body), _CHUNK)
        for index, start in enumerate(starts):
            chunk = {'body': message.body[start : start + _CHUNK], 'written_at': written_at}
            await self._database.insert(CHUNKS, {'_id': _chunk(upload, index)} | chunk)
        return {'upload': upload, 'chunks': len(starts)}


async def read_whole(
    find: Callable[[], Awaitable[list[Document]]], complete: Callable[[list[Document]], Awaitable[T]]
) -> T:
    """Find documents and complete them with what they refer to.

    Both may be deleted in between, so only what is missing for the same documents a second time is missing.

    Raises:
        StoreCorruptionError: Something is missing or damaged.
    """
    failed: list[Document] | None = None
    while True:
        found = await find()
        try:
            return await complete(found)
        except StoreCorruptionError:
            if found == failed:
                raise
            failed = found


def upload_of(chunk: bytes) -> bytes:
    """Return which upload a chunk belongs to. Its name begins with the digest of the message."""
    return chunk[:-_INDEX]


def _missing(digest: bytes) -> StoreCorruptionError:
    return StoreCorruptionError(STORE, f'the message {digest.hex()} is missing.')


def _chunks(document: Document) -> list[bytes]:
    return [_chunk(document['upload'], index) for index in range(document.get('chunks', 0))]


def _chunk(upload: bytes, index: int) -> bytes:
    return upload + index.to_bytes(_INDEX, 'big')
