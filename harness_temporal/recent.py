"""Memory that is bounded: what was used lately stays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar('K')
V = TypeVar('V')


def _one(value: object) -> int:
    return 1


class Recent(Generic[K, V]):
    """A mapping that keeps the entries used latest.

    Args:
        limit: How much the values may weigh in all.
        weigh: What one weighs; by default each weighs 1, so that `limit` is their number.
    """

    def __init__(self, limit: int, weigh: Callable[[V], int] = _one) -> None:
        self._limit = limit
        self._weigh = weigh
        self._items: OrderedDict[K, V] = OrderedDict()
        self.weight = 0
        """Of the values that it holds."""

    def get(self, key: K) -> V | None:
        """Return the value under `key`, which counts as a use."""
        if key in self._items:
            self._items.move_to_end(key)
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value, at the cost of those that were not used for longest."""
        self.drop(key)
        self._items[key] = value
        self.weight += self._weigh(value)
        while self.weight > self._limit:
            _, oldest = self._items.popitem(last=False)
            self.weight -= self._weigh(oldest)

    def drop(self, key: K) -> None:
        """Forget a value, if there is one."""
        if key in self._items:
            self.weight -= self._weigh(self._items.pop(key))

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self.weight = 0
