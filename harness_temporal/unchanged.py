"""Whether values are what they were when they were watched, at a fraction of the cost of looking at each. Pure.

A value that cannot change is the same as long as it is the same object. One that can change is the same as long as all
that was in it is: its attributes, items, keys. So what is compared is which objects are in which containers. Equality
would not do, because `1`, `1.0` and `True` are equal too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime, timezone
from functools import cache
from itertools import chain
from operator import is_
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

from harness_temporal.addresses import addresses

_CONSTANT = frozenset({str, type(None), bytes, int, float, bool})
_TIME_ZONES = frozenset({type(None), timezone, ZoneInfo, TzInfo})
_KNOWN_CLASSES = 'pydantic_ai.'
"""Only of these it is known that what they are encoded as follows from their attributes."""

_BETWEEN: Final = (object(),)
"""Looked into between two lists or mappings, so that nothing can move from the end of one to the beginning of the next.

Nothing comes to be before the first attribute of an object.
"""


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many objects two sequences begin with that are the same."""
    length = min(len(one), len(other))
    if addresses(list(one[:length])) == addresses(list(other[:length])):
        return length
    return list(map(is_, one, other)).index(False)


@dataclass
class _Containers:
    """Containers that are looked into in the same way, and what was in them."""

    look: Callable[[Iterable[Any]], list[object]]
    """Gives what is in several, in a row."""
    containers: list[Any] = field(default_factory=list[Any])
    contents: list[object] = field(default_factory=list[object])
    """Of all containers in a row. Held, so that no other object gets the address of one."""
    ends: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Of each value, the numbers of containers and of contents up to its last."""

    def take(self) -> None:
        """Take the containers that were added last as those of the next value."""
        self.contents += self.look(self.containers[self._end(len(self.ends))[0] :])
        self.ends.append((len(self.containers), len(self.contents)))

    def unchanged(self) -> int:
        """Return how many values, counted from the first, have in their containers what they had."""
        # Thousands of objects at every step of a run, and hardly ever has one changed: nothing of this is Python code.
        if addresses(self.look(self.containers)) == addresses(self.contents):
            return len(self.ends)
        start, first = 0, 0
        for place, (stop, last) in enumerate(self.ends):
            if addresses(self.look(self.containers[start:stop])) != addresses(self.contents[first:last]):
                return place
            start, first = stop, last
        return len(self.ends)

    def forget(self, place: int) -> None:
        """Have only the values before this place."""
        containers, contents = self._end(place)
        del self.containers[containers:], self.contents[contents:], self.ends[place:]

    def _end(self, place: int) -> tuple[int, int]:
        return self.ends[min(place, len(self.ends)) - 1] if place and self.ends else (0, 0)


def _referents(containers: Iterable[Any]) -> list[object]:
    # The items of lists, the attributes of objects, the values of mappings whose keys are texts. Nothing else gives
    # them nearly as quickly.
    return gc.get_referents(*containers)


def _keys(mappings: Iterable[Any]) -> list[object]:
    return list(chain.from_iterable(mappings))


class Watch:
    """Watches values, each at the place after the one before it."""

    def __init__(self) -> None:
        self._referents = _Containers(_referents)
        self._keys = _Containers(_keys)

    @property
    def length(self) -> int:
        """How many values are watched."""
        return len(self._keys.ends)

    def add(self, value: object) -> bool:
        """Watch one more value; false, with nothing watched, if a change to it could not be seen."""
        try:
            watched = self._add(value)
        except RecursionError:
            watched = False
        if watched:
            self._take()
        else:
            self.forget(self.length)
        return watched

    def skip(self) -> None:
        """Leave a place to a value that is not watched."""
        self._take()

    def unchanged(self) -> int:
        """Return how many values, counted from the first, are as they were."""
        return min(self._referents.unchanged(), self._keys.unchanged())

    def forget(self, place: int) -> None:
        """Watch only the values before this place."""
        self._referents.forget(place)
        self._keys.forget(place)

    def _add(self, value: object) -> bool:
        kind = type(value)
        if kind in _CONSTANT:
            return True
        if kind is datetime:
            return type(cast(datetime, value).tzinfo) in _TIME_ZONES
        if kind is tuple:
            return all(map(self._add, cast(tuple[object, ...], value)))
        if kind is list:
            self._add_items(cast(list[object], value))
            return all(map(self._add, cast(list[object], value)))
        if kind is dict:
            self._add_items(cast(dict[object, object], value))
            self._keys.containers.append(value)
            items = cast(dict[object, object], value)
            return all(type(key) in _CONSTANT for key in items) and all(map(self._add, items.values()))
        if not _is_known_class(kind):
            return False
        # Its `__dict__` may be replaced as well.
        self._referents.containers += (vars(value), value)
        return all(map(self._add, vars(value).values()))

    def _take(self) -> None:
        self._referents.take()
        self._keys.take()

    def _add_items(self, container: list[object] | dict[object, object]) -> None:
        containers = self._referents.containers
        if containers and type(containers[-1]) in (list, dict):
            containers.append(_BETWEEN)
        containers.append(container)


@cache
def _is_known_class(kind: type[Any]) -> bool:
    """Whether objects of the class are what their attributes are, all of which they have in their `__dict__`."""
    has_slots = any(vars(base).get('__slots__') for base in kind.__mro__)
    return is_dataclass(kind) and kind.__module__.startswith(_KNOWN_CLASSES) and not has_slots
