"""Plain JSON values: what state may hold beside messages. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

MAX_DEPTH = 200
"""How deep a value may nest anywhere in a state; Pydantic's own parser gives up not far above it."""


@dataclass(frozen=True)
class JsonLimits:
    """How large a value may be."""

    depth: int = MAX_DEPTH
    nodes: int | None = None
    size: int | None = None
    """Bytes of the canonical form."""


def canonical_json(value: Any, limits: JsonLimits = JsonLimits()) -> bytes:
    """Encode a JSON value so that equal values have equal bytes, whatever the order of their keys.

    Only what JSON itself has is taken: no tuples, bytes, keys that are no strings, NaN or infinities.

    Raises:
        ValueError: The value is something else, or is larger than `limits` allow.
    """
    _check(value, limits)
    encoded = json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False, allow_nan=False).encode()
    if limits.size is not None and len(encoded) > limits.size:
        raise ValueError(f'it has {len(encoded)} bytes as JSON; at most {limits.size} are allowed.')
    return encoded


def _check(value: Any, limits: JsonLimits) -> None:
    nodes, depth, level = 0, 0, [value]
    # Level by level rather than by recursion: the depth of a value is not ours to choose.
    while level:
        depth += 1
        nodes += len(level)
        if depth > limits.depth + 1:
            raise ValueError(f'it nests deeper than {limits.depth} levels.')
        if limits.nodes is not None and nodes > limits.nodes:
            raise ValueError(f'it has more than {limits.nodes} values.')
        level = [child for item in level for child in _children(item)]


def _children(value: Any) -> Iterable[Any]:
    kind = cast(type[Any], type(value))
    if kind is dict:
        mapping = cast(dict[Any, Any], value)
        if not all(type(key) is str for key in mapping):
            raise ValueError('a key of a mapping is not a string.')
        return mapping.values()
    if kind is list:
        return cast(list[Any], value)
    if kind is float and not math.isfinite(value):
        raise ValueError(f'{value} is not JSON.')
    if value is not None and kind not in (str, int, float, bool):
        raise ValueError(f'a {kind.__name__} is not JSON.')
    return ()


def holds_non_finite(value: Any) -> bool:
    """Whether a float that JSON does not have is anywhere inside `value` and its plain containers."""
    level = [value]
    while level:
        if any(isinstance(item, float) and not math.isfinite(item) for item in level):
            return True
        level = [child for item in level for child in _items(item)]
    return False


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[Any, Any], value).values()
    if isinstance(value, list | tuple | set | frozenset):
        return cast(Iterable[Any], value)
    return ()
