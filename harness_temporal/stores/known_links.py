"""Which histories a store holds, as far as a process knows. A store that is asked to build on one checks it."""

from __future__ import annotations

import threading

from harness_temporal.recent import Recent
from harness_temporal.records import EncodedHistory

_LINKS = 32_768


class KnownLinks:
    """The links that this process wrote lately."""

    def __init__(self) -> None:
        self._links = Recent[bytes, bool](_LINKS)
        self._lock = threading.Lock()

    def known_length(self, history: EncodedHistory) -> int:
        """Return how many of the history's links are stored, as far as is known."""
        with self._lock:
            count = len(history.links)
            while count and not self._links.get(history.links[count - 1].digest):
                count -= 1
            return count

    def saw_history(self, history: EncodedHistory) -> None:
        """Remember that all of a history is stored."""
        new = history.links[self.known_length(history) :]
        with self._lock:
            for link in new:
                self._links.put(link.digest, True)

    def forget_links(self) -> None:
        """Start anew after a belief was wrong."""
        with self._lock:
            self._links.clear()

    def unknown_part(self, history: EncodedHistory) -> EncodedHistory:
        """Return what is new of a history, on top of what is known to be stored."""
        known = self.known_length(history)
        if not known:
            return history
        return EncodedHistory(history.links[known - 1].digest, history.base_length + known, history.links[known:])
