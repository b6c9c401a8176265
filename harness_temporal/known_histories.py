"""Histories that were encoded a moment ago: a run encodes its whole history at every step, and little of it is new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic_ai.messages import ModelMessage

from harness_temporal.recent import Recent
from harness_temporal.records import HistoryLink, StoredMessage
from harness_temporal.unchanged import Watch, common_length

Encode: TypeAlias = Callable[[ModelMessage], StoredMessage]
Link: TypeAlias = Callable[[HistoryLink | None, StoredMessage], HistoryLink]

_OVERHEAD = 4096
"""Bytes that a message and its watch take beside its body, about."""


class KnownHistory:
    """The links of a history's messages, as long as these are the same objects and nothing in them has changed.

    A message is watched when it comes by for the second time: one that was just read from somewhere never does.
    """

    def __init__(self) -> None:
        self.size = _OVERHEAD
        """Bytes that it takes, about."""
        self._links: list[HistoryLink] = []
        self._messages: list[ModelMessage] = []
        self._watch = Watch()
        self._unwatchable: list[int] = []
        """The places of messages that may change unseen. Encoding them tells."""
        self._length = 0
        """How many messages the history had, those included that came by once."""

    def links(self, messages: Sequence[ModelMessage], encode: Encode, link: Link) -> list[HistoryLink]:
        """Return the links of a history, which is the known one from now on."""
        self._forget_changed(messages, encode)
        for message in messages[len(self._links) : self._length]:
            self._add(message, encode, link)
        self._length = len(messages)
        links = self._links.copy()
        for message in messages[len(links) :]:
            links.append(link(links[-1] if links else None, encode(message)))
        return links

    def _forget_changed(self, messages: Sequence[ModelMessage], encode: Encode) -> None:
        same = min(common_length(messages, self._messages), self._watch.unchanged())
        for place in self._unwatchable:
            if place < same and encode(messages[place]) != self._links[place].message:
                same = place
        if same == len(self._messages):
            return
        self.size -= sum(map(_size, self._links[same:]))
        self._watch.forget(same)
        self._unwatchable = [place for place in self._unwatchable if place < same]
        del self._links[same:], self._messages[same:]

    def _add(self, message: ModelMessage, encode: Encode, link: Link) -> None:
        # Watched before it is encoded, so that a change in between is seen.
        if not self._watch.add(message):
            self._unwatchable.append(len(self._links))
            self._watch.skip()
        self._messages.append(message)
        self._links.append(link(self._links[-1] if self._links else None, encode(message)))
        self.size += _size(self._links[-1])


class KnownHistories:
    """The histories encoded latest. Any thread may use them; a history that is in use is nobody else's.

    Args:
        limit: How many bytes they may take in all, about.
    """

    def __init__(self, limit: int) -> None:
        # By the last message, which stays the same object while a history grows.
        self._histories = Recent[int, KnownHistory](limit, lambda history: history.size)
        self._lock = threading.Lock()

    def links(self, messages: Sequence[ModelMessage], encode: Encode, link: Link) -> list[HistoryLink]:
        """Return the links of a history."""
        known = self._take(messages)
        links = known.links(messages, encode, link)
        if messages:
            with self._lock:
                self._histories.put(id(messages[-1]), known)
        return links

    def _take(self, messages: Sequence[ModelMessage]) -> KnownHistory:
        with self._lock:
            for name in map(id, reversed(messages)):
                # Another object may have had this id; then nothing of what is known fits.
                if (known := self._histories.get(name)) is not None:
                    self._histories.drop(name)
                    return known
        return KnownHistory()


def _size(item: HistoryLink) -> int:
    return len(item.message.body) + _OVERHEAD
