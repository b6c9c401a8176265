"""Messages and histories: what is large, never changes and is named by its digest.

It is written before the transaction that refers to it, so that no transaction is large. Writing it twice is harmless.

A link names, besides its parent, earlier links of its history: with L as its length, those at L without its lowest bit,
without its two lowest bits and so on. From the end of a history all of it is then reached in about 2 log2(L) rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness_temporal.databases.mongo import Database
from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.history import stored_message
from harness_temporal.records import EncodedHistory, StoredMessage
from harness_temporal.stores.mongo.documents import STORE, Document

_CHUNK = 8 << 20
"""Bytes of a body per document, which has at most 16 MiB."""
_DIGEST = 32
_ASKED_AT_ONCE = 250


class Content:
    """The collections `messages`, `message_chunks` and `history_links`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, bodies: Iterable[StoredMessage], histories: Sequence[EncodedHistory]) -> None:
        """Store bodies and histories; of a history only what is not there, give or take a few messages.

        Raises:
            HistoryMissingError: A base is neither here nor made by an earlier one of the histories. Nothing is written.
        """
        messages = {body.digest: body for body in bodies}
        links: dict[bytes, Document] = {}
        there = await self._documents('history_links', {digest for item in histories for digest in _probes(item)})
        for history in histories:
            _extend(there, links, messages, history)
        await self._save_bodies(messages.values())
        await self._database.add('history_links', list(links.values()))

    async def bodies(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return stored bodies by their digests.

        Raises:
            StoreCorruptionError: One is missing or damaged.
        """
        wanted = set(digests)
        documents = await self._documents('messages', wanted)
        pieces = [_chunk(digest, index) for digest, item in documents.items() for index in range(item.get('chunks', 0))]
        chunks = await self._documents('message_chunks', pieces)
        found: dict[bytes, bytes] = {}
        for digest, document in documents.items():
            names = [_chunk(digest, index) for index in range(document.get('chunks', 0))]
            body = document.get('body', b'') + b''.join(chunks[name]['body'] for name in names if name in chunks)
            if stored_message(body).digest == digest:
                found[digest] = body
        for digest in wanted - found.keys():
            raise StoreCorruptionError(STORE, f'the message {digest.hex()} is missing or damaged.')
        return found

    async def histories(self, heads: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """Return the bodies of whole histories, in order.

        Raises:
            StoreCorruptionError: A link or a message is missing or damaged.
        """
        links: dict[bytes, Document] = {}
        wanted = frontier = set(heads)
        while frontier:
            found = await self._documents('history_links', frontier)
            links |= found
            frontier = {earlier for link in found.values() for earlier in _earlier(link)} - links.keys()
        chains = {head: _chain(links, head) for head in wanted}
        bodies = await self.bodies({digest for chain in chains.values() for digest in chain})
        return {head: [bodies[digest] for digest in chain] for head, chain in chains.items()}

    async def fill(self, documents: Sequence[Document], name: str) -> None:
        """Put values that are kept like messages back into their documents."""
        large = [document for document in documents if f'{name}_digest' in document]
        bodies = await self.bodies(document[f'{name}_digest'] for document in large)
        for document in large:
            document[name] = bodies[document[f'{name}_digest']]

    async def _save_bodies(self, messages: Iterable[StoredMessage]) -> None:
        documents: list[Document] = []
        for message in messages:
            if len(message.body) <= _CHUNK:
                documents.append({'_id': message.digest, 'body': message.body})
                continue
            starts = range(0, len(message.body), _CHUNK)
            for index, start in enumerate(starts):
                chunk = {'_id': _chunk(message.digest, index), 'body': message.body[start : start + _CHUNK]}
                await self._database.add('message_chunks', [chunk])
            documents.append({'_id': message.digest, 'chunks': len(starts)})
        await self._database.add('messages', documents)

    async def _documents(self, collection: str, names: Iterable[bytes]) -> dict[bytes, Document]:
        rest = list(names)
        found: dict[bytes, Document] = {}
        while rest:
            asked, rest = rest[:_ASKED_AT_ONCE], rest[_ASKED_AT_ONCE:]
            found |= {item['_id']: item for item in await self._database.find(collection, {'_id': {'$in': asked}})}
        return found


def _probes(history: EncodedHistory) -> list[bytes]:
    """Return the links to ask for: the last, those 1, 2, 4, 8 and so on before it, and the base."""
    steps = (0, *(2**power for power in range(len(history.links).bit_length())))
    digests = [history.links[-1 - step].digest for step in steps if step < len(history.links)]
    return digests if history.base is None else [*digests, history.base]


def _extend(
    there: dict[bytes, Document],
    links: dict[bytes, Document],
    messages: dict[bytes, StoredMessage],
    history: EncodedHistory,
) -> None:
    """Add what is missing of a history to `links` and `messages`. All links that are known are in `there`."""
    missing = len(history.links)
    while missing and history.links[missing - 1].digest not in there:
        missing -= 1
    last = history.links[missing - 1].digest if missing else history.base
    at: dict[int, bytes] = {}
    if last is not None:
        if last not in there:
            raise HistoryMissingError(STORE, f'the history {last.hex()} is not here.')
        length = history.base_length + missing
        at = {length: last} | dict(zip(_reach(length), _earlier(there[last]), strict=True))
    for link in history.links[missing:]:
        up = b''.join(at[length] for length in _reach(link.length))
        document = {'_id': link.digest, 'up': up, 'message': link.message.digest, 'length': link.length}
        at[link.length] = link.digest
        there[link.digest] = links[link.digest] = document
        messages[link.message.digest] = link.message


def _reach(length: int) -> list[int]:
    """Return the lengths of the histories that a link names: its parent's, then ever fewer of its own bits."""
    lengths = {length - 1: None}
    while length := length & (length - 1):
        lengths[length] = None
    return [reached for reached in lengths if reached]


def _earlier(link: Document) -> list[bytes]:
    up: bytes = link['up']
    return [up[start : start + _DIGEST] for start in range(0, len(up), _DIGEST)]


def _chain(links: dict[bytes, Document], head: bytes) -> list[bytes]:
    """Return the digests of a history's messages in order."""
    chain: list[bytes] = []
    step: bytes | None = head
    while step is not None:
        if step not in links:
            raise StoreCorruptionError(STORE, f'the history {step.hex()} is missing.')
        chain.append(links[step]['message'])
        step = links[step]['up'][:_DIGEST] or None
    return chain[::-1]


def _chunk(digest: bytes, index: int) -> bytes:
    return digest + index.to_bytes(4, 'big')
