"""Whether values are what they were when they were watched, at a fraction of the cost of looking at each. Pure.

A value that cannot change is the same as long as it is the same object. One that can change is the same as long as all
that was in it is: its attributes, items, keys. So what is compared is which objects are in which containers. A text may
also have been replaced by an equal one; nothing else may, because `1`, `1.0` and `True` are equal too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime, timezone
from functools import cache
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any, cast
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

_TEXT = frozenset({str, type(None)})
_CONSTANT = frozenset({*_TEXT, bytes, int, float, bool})
_TIME_ZONES = frozenset({type(None), timezone, ZoneInfo, TzInfo})
_VALUES: Callable[[Any], Collection[object]] = dict[Any, Any].values
_KNOWN_CLASSES = 'pydantic_ai.'
"""Only of these it is known that what they are encoded as follows from their attributes."""


@dataclass
class _Containers:
    """Containers that are looked into in the same way, and what was in them."""

    look: Callable[[Any], Collection[object]] | None
    """Gives what is compared of one; by default what it gives when it is iterated."""
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
        self.contents += found

    def unchanged(self, end: int) -> int:
        found = self.containers if self.look is None else list(map(self.look, self.containers))
        # Thousands of objects at every step of a run, and hardly ever has one changed: nothing of this is Python code.
        same_lengths = list(map(len, found)) == self.lengths
        if same_lengths and all(map(is_, chain.from_iterable(found), self.contents)):
            return end
        contents = iter(self.contents)
        for place, now, length in zip(self.places, found, self.lengths, strict=True):
            then = list(islice(contents, length))
            if len(now) != length or not all(map(is_, now, then)):
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
        self._containers: dict[Hashable, _Containers] = {}
        self._places: list[int] = []
        self._objects: list[object] = []
        self._attributes: list[dict[str, object]] = []

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
        end = self._objects_unchanged()
        return min([end, *(containers.unchanged(end) for containers in self._containers.values())])

    def forget(self, place: int) -> None:
        """Watch only the values before this place."""
        self.length = min(self.length, place)
        first = bisect_left(self._places, place)
        del self._places[first:], self._objects[first:], self._attributes[first:]
        for containers in self._containers.values():
            containers.forget(place)

    def _objects_unchanged(self) -> int:
        # By equality, which is quicker. What that would not tell apart is looked at once more, as containers.
        found = list(map(vars, self._objects))
        if _equal(found, self._attributes):
            return self.length
        pairs = zip(self._places, found, self._attributes, strict=True)
        return next((place for place, now, then in pairs if not _equal(now, then)), self.length)

    def _add(self, value: object) -> bool:
        kind = type(value)
        if kind in _CONSTANT:
            return True
        if kind is datetime:
            return type(cast(datetime, value).tzinfo) in _TIME_ZONES
        if kind is tuple:
            return all(map(self._add, cast(tuple[object, ...], value)))
        if kind is list:
            self._watch('items', value)
            return all(map(self._add, cast(list[object], value)))
        if kind is dict:
            self._watch('items', value)
            self._watch('values', value, look=_VALUES)
            items = cast(dict[object, object], value)
            return all(type(key) in _CONSTANT for key in items) and all(map(self._add, items.values()))
        return _is_known_class(kind) and self._add_object(value)

    def _add_object(self, value: object) -> bool:
        attributes = vars(value)
        self._places.append(self.length)
        self._objects.append(value)
        self._attributes.append(attributes.copy())
        exact = tuple(name for name, item in attributes.items() if type(item) not in _TEXT)
        if exact:
            # One name more, because for a single one what is returned is no tuple.
            self._watch(exact, value, look=attrgetter(*exact, exact[0]))
        return all(map(self._add, attributes.values()))

    def _watch(self, kind: Hashable, value: object, look: Callable[[Any], Collection[object]] | None = None) -> None:
        if kind not in self._containers:
            self._containers[kind] = _Containers(look)
        self._containers[kind].add(self.length, value)


@cache
def _is_known_class(kind: type[Any]) -> bool:
    """Whether objects of the class are what their attributes are, all of which they have in their `__dict__`."""
    has_slots = any(vars(base).get('__slots__') for base in kind.__mro__)
    return is_dataclass(kind) and kind.__module__.startswith(_KNOWN_CLASSES) and not has_slots


def _equal(now: object, then: object) -> bool:
    try:
        return now == then
    except Exception:  # noqa: BLE001  # whatever an object of an application raises: it is not what was there
        return False
