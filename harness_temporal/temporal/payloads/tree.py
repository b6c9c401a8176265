"""The list of a payload's pieces, as pieces. Pure.

The names of the pieces are cut into groups by what they are, each group is a piece as well, and so on until one name is
left: that of the root. So a list of names does not grow with the payload where the payload is referred to, and two
lists that share a part share the pieces of that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAME_SIZE: Final = 32
"""Bytes of a name: a SHA-256."""
DEEPEST: Final = 16
"""Levels of a tree, at most. A group has at least two names, and usually thirty."""
_LARGEST = 128
_MASK = 31


def group(names: Sequence[bytes]) -> list[bytes]:
    """Return the groups of a list of two names or more, each as its names in a row. There are fewer than names."""
    groups: list[bytes] = []
    start = 0
    for index, name in enumerate(names, 1):
        size = index - start
        if size >= _LARGEST or (size > 1 and not name[-1] & _MASK):
            groups.append(b''.join(names[start:index]))
            start = index
    if start < len(names):
        groups.append(b''.join(names[start:]))
    return groups


def names_in(node: bytes) -> list[bytes]:
    """Return the names of a group.

    Raises:
        ValueError: It is none.
    """
    if not node or len(node) % NAME_SIZE:
        raise ValueError('it is no list of names')
    return [node[start : start + NAME_SIZE] for start in range(0, len(node), NAME_SIZE)]
