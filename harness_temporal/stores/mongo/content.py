"""Histories: what is large, never changes and is named by its digest.

It is written before the transaction that refers to it, so that no transaction is large. Writing it twice is harmless.
For what keeps it from being collected in between, see `retention`.

A link names, besides its parent, earlier links of its history: with L as its length, those at L without its lowest bit,
without its two lowest bits and so on. From the end of a history all of it is then reached in about 2 log2(L) rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness_temporal.databases.mongo import Database
from harness_temporal.errors import HistoryMissingError, StoreCorruptionError
from harness_temporal.media.protocol import TOUCH_INTERVAL
from harness_temporal.recent import Recent
from harness_temporal.records import EncodedHistory, StoredMessage, to_microseconds, utc_now
from harness_temporal.stores.mongo.documents import STORE, Document
from harness_temporal.stores.mongo.messages import Messages

LINKS: Final = 'history_links'
DIGEST: Final = 32
_SAVED = 4096
"""Histories that are known to have been saved."""


class Content:
    """The collection `history_links`, and with it the messages of the histories."""

    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages
        self._saved = Recent[bytes, bool](_SAVED)
        """The last links of histories that were saved here, and so are there unless they were collected."""

    async def save(self, bodies: Iterable[StoredMessage], histories: Sequence[EncodedHistory]) -> None:
        """Store bodies and histories; of a history only what is not there, give or take a few messages.

        Raises:
            HistoryMissingError: A base is neither here nor made by an earlier one of the histories. Nothing is written.
        """
        bodies = list(bodies)
        while True:
            now = utc_now()
            touched_at = to_microseconds(now)
            there = await self._database.named(LINKS, {digest for item in histories for digest in self._probes(item)})
            new = _New(there, {body.digest: body for body in bodies}, touched_at)
            bases = {base for history in histories if (base := new.extend(history)) is not None}
            old = [base for base in bases if there[base]['touched_at'] < to_microseconds(now - TOUCH_INTERVAL)]
            # What a history is built on is touched before anything is built on it.
            if not old or await self._database.touch(LINKS, old, touched_at=touched_at):
                break
        # In this order, and the links in theirs: whoever finds a link finds the whole history and its messages.
        await self._messages.save(new.messages.values(), touched_at=touched_at)
        await self._database.put(LINKS, new.links, touched_at=touched_at)
        for history in histories:
            if history.head is not None:
                self._saved.put(history.head, True)

    async def histories(self, heads: Iterable[bytes]) -> dict[bytes, list[StoredMessage]]:
        """Return the messages of whole histories, in order.

        Raises:
            StoreCorruptionError: A link or a message is missing.
        """
        links: dict[bytes, Document] = {}
        wanted = frontier = set(heads)
        while frontier:
            found = await self._database.named(LINKS, frontier)
            links |= found
            frontier = {earlier for link in found.values() for earlier in _earlier(link).values()} - links.keys()
        chains = {head: _chain(links, head) for head in wanted}
        bodies = await self._messages.bodies({digest for chain in chains.values() for digest in chain})
        return {head: [StoredMessage(digest, bodies[digest]) for digest in chain] for head, chain in chains.items()}

    async def tail(self, head: bytes, most: int) -> list[Document]:
        """Return the last links of a history, at most so many, the last one first; none if it is gone."""
        links: dict[bytes, Document] = {}
        frontier = {head}
        while frontier:
            found = await self._database.named(LINKS, frontier)
            links |= found
            end = links[head]['length'] if head in links else 0
            frontier = {
                earlier
                for link in found.values()
                for length, earlier in _earlier(link).items()
                if length > end - most and earlier not in links
            }
        tail: list[Document] = []
        step: bytes | None = head
        while step in links:
            tail.append(links[step])
            step = links[step].get('parent')
        return tail

    def _probes(self, history: EncodedHistory) -> list[bytes]:
        """Return the links to ask for: the base, the last that was saved here, and a few later ones.

        Others may have saved those: the last of all, and those 1, 2, 4, 8 and so on before it.
        """
        links = history.links
        saved = next((at for at, item in enumerate(reversed(links)) if self._saved.get(item.digest)), len(links))
        steps = [step for step in (0, *(2**power for power in range(saved.bit_length()))) if step < saved]
        if saved < len(links):
            steps.append(saved)
        base = [] if history.base is None else [history.base]
        return [*base, *(links[-1 - step].digest for step in steps)]


class _New:
    """What is not there of the histories of a batch."""

    def __init__(self, there: dict[bytes, Document], messages: dict[bytes, StoredMessage], touched_at: int) -> None:
        self._there = there
        """All links that are known; the new ones too, which a later history may build on."""
        self._touched_at = touched_at
        self.messages = messages
        self.links: list[Document] = []
        """Each after its parent."""

    def extend(self, history: EncodedHistory) -> bytes | None:
        """Add what is missing of a history, and return the link that it is built on."""
        missing = len(history.links)
        while missing and history.links[missing - 1].digest not in self._there:
            missing -= 1
        last = history.links[missing - 1].digest if missing else history.base
        at: dict[int, bytes] = {}
        if last is not None:
            if last not in self._there:
                raise HistoryMissingError(STORE, f'the history {last.hex()} is not here.')
            at = {history.base_length + missing: last} | _earlier(self._there[last])
        for link in history.links[missing:]:
            document = {
                '_id': link.digest,
                'up': b''.join(at[length] for length in _reach(link.length)),
                'message': link.message.digest,
                'length': link.length,
            }
            if link.parent is not None:
                # What `up` begins with, once more for an index.
                document['parent'] = link.parent
            at[link.length] = link.digest
            self.links.append(document)
            self._there[link.digest] = document | {'touched_at': self._touched_at}
            self.messages[link.message.digest] = link.message
        return last


def _reach(length: int) -> list[int]:
    """Return the lengths of the histories that a link names: its parent's, then ever fewer of its own bits."""
    lengths = {length - 1: None}
    while length := length & (length - 1):
        lengths[length] = None
    return [reached for reached in lengths if reached]


def _earlier(link: Document) -> dict[int, bytes]:
    """Return the earlier links that a link names, by their lengths."""
    up: bytes = link['up']
    names = [up[start : start + DIGEST] for start in range(0, len(up), DIGEST)]
    return dict(zip(_reach(link['length']), names, strict=True))


def _chain(links: dict[bytes, Document], head: bytes) -> list[bytes]:
    """Return the digests of a history's messages in order."""
    chain: list[bytes] = []
    step: bytes | None = head
    while step is not None:
        if step not in links:
            raise StoreCorruptionError(STORE, f'the history {step.hex()} is missing.')
        chain.append(links[step]['message'])
        step = links[step].get('parent')
    return chain[::-1]
