"""Whether values are what they were when they were watched, at a fraction of the cost of looking at each. Pure.

A value that cannot change is the same as long as it is the same object. One that can change is the same as long as all
that was in it is: its attributes, items, keys. So what is compared is which objects are in which containers. Equality
would not do, because `1`, `1.0` and `True` are equal too.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime, timezone
from functools import cache
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any, TypeAlias, cast
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

_CONSTANT = frozenset({str, type(None), bytes, int, float, bool})
_TIME_ZONES = frozenset({type(None), timezone, ZoneInfo, TzInfo})
_KNOWN_CLASSES = 'pydantic_ai.'
"""Only of these it is known that what they are encoded as follows from their attributes."""

_Found: TypeAlias = Collection[object]


def _referents(found: Iterable[_Found]) -> Iterable[object]:
    # The items of lists, the values of mappings whose keys are texts. Nothing else gives them nearly as quickly.
    return gc.get_referents(*found)


@dataclass
class _Containers:
    """Containers that are looked into in the same way, and what was in them."""

    look: Callable[[Any], _Found] | None
    """Gives what is compared of one; by default the container itself."""
    flat: Callable[[Iterable[_Found]], Iterable[object]]
    """Gives what is in several, in a row."""
    places: list[int] = field(default_factory=list[int])
    """The value that each is part of, in ascending order."""
    containers: list[Any] = field(default_factory=list[Any])
    lengths: list[int] = field(default_factory=list[int])
    contents: list[object] = field(default_factory=list[object])
    """Of all containers in a row."""

    def add(self, place: int, container: Any) -> None:
        found = container if self.look is None else self.look(container)
        self.places.append(place)
        self.containers.append(container)
        self.lengths.append(len(found))
        self.contents += self.flat([found])

    def unchanged(self, end: int) -> int:
        found = self.containers if self.look is None else list(map(self.look, self.containers))
        # Thousands of objects at every step of a run, and hardly ever has one changed: nothing of this is Python code.
        same_lengths = list(map(len, found)) == self.lengths
        if same_lengths and all(map(is_, self.flat(found), self.contents)):
            return end
        contents = iter(self.contents)
        for place, now, length in zip(self.places, found, self.lengths, strict=True):
            then = list(islice(contents, length))
            if len(now) != length or not all(map(is_, self.flat([now]), then)):
                return place
        return end

    def forget(self, place: int) -> None:
        first = bisect_left(self.places, place)
        del self.contents[sum(self.lengths[:first]) :]
        del self.places[first:], self.containers[first:], self.lengths[first:]


class Watch:
    """Watches values, each at the place after the one before it."""

    def __init__(self) -> None:
        self.length = 0
        """How many values are watched."""
        self._objects = _Containers(attrgetter('__dict__'), _referents)
        self._lists = _Containers(None, _referents)
        self._keys = _Containers(None, chain.from_iterable)
        self._values = _Containers(dict[Any, Any].values, chain.from_iterable)
        self._all = (self._objects, self._lists, self._keys, self._values)

    def add(self, value: object) -> bool:
        """Watch one more value; false, with nothing watched, if a change to it could not be seen."""
        try:
            if self._add(value):
                self.length += 1
                return True
        except RecursionError:
            pass
        self.forget(self.length)
        return False

    def skip(self) -> None:
        """Leave a place to a value that is not watched."""
        self.length += 1

    def unchanged(self) -> int:
        """Return how many values, counted from the first, are as they were."""
        return min(containers.unchanged(self.length) for containers in self._all)

    def forget(self, place: int) -> None:
        """Watch only the values before this place."""
        self.length = min(self.length, place)
        for containers in self._all:
            containers.forget(place)

    def _add(self, value: object) -> bool:
        kind = type(value)
        if kind in _CONSTANT:
            return True
        if kind is datetime:
            return type(cast(datetime, value).tzinfo) in _TIME_ZONES
        if kind is tuple:
            return all(map(self._add, cast(tuple[object, ...], value)))
        if kind is list:
            self._lists.add(self.length, value)
            return all(map(self._add, cast(list[object], value)))
        if kind is dict:
            self._keys.add(self.length, value)
            self._values.add(self.length, value)
            items = cast(dict[object, object], value)
            return all(type(key) in _CONSTANT for key in items) and all(map(self._add, items.values()))
        if not _is_known_class(kind):
            return False
        self._objects.add(self.length, value)
        return all(map(self._add, vars(value).values()))


@cache
def _is_known_class(kind: type[Any]) -> bool:
    """Whether objects of the class are what their attributes are, all of which they have in their `__dict__`."""
    has_slots = any(vars(base).get('__slots__') for base in kind.__mro__)
    return is_dataclass(kind) and kind.__module__.startswith(_KNOWN_CLASSES) and not has_slots
