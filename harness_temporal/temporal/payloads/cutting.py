"""Cuts bytes into pieces by what is in them, so that equal parts of two payloads are equal pieces. Pure.

Where a cut is depends on the bytes right around it only. Two payloads that begin alike have the same first pieces, and
after an edit in the middle the cuts fall into step again within a few pieces.

The loop takes one step per JSON object, not per byte: what looks at bytes is `re` and `zlib`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from zlib import crc32

SMALLEST: Final = 1024
"""Bytes of a piece between objects, at least. Only what is beside a long object may be smaller."""
LONG: Final = 16 * 1024
"""A piece is closed at the next object when it is so long; one object that is so long is cut inside."""
APART: Final = 12 * 1024
"""Bytes between two cuts in a long object, at least."""
LARGEST: Final = 64 * 1024
"""Bytes of a piece, at most."""

_OBJECTS = re.compile(rb'\},(?=\{)')
"""Between two objects of a JSON list: two messages, or two parts of one."""
_TEXT = re.compile(rb'[eQ7\x81\x9a\xb5][rAk1,\x80-\xff]')
"""Places in a long string: one in 20 to 700 bytes of prose, base64, numbers, other scripts and random bytes. A pattern
without alternatives, which `re` looks for three times as fast."""
_MASK = 3


def cut(data: bytes) -> list[bytes]:
    """Return pieces that make up `data` when they are joined. The names of all payloads depend on where they are."""
    return [data[start:end] for start, end in _spans(data)]


def most_pieces(size: int) -> int:
    """Return more pieces than any data of this size is cut into. A small piece has a long object beside it."""
    return 2 * (size // SMALLEST) + 2


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    view = memoryview(data)
    start = segment = 0
    for end in _ends(data):
        length = end - segment
        if length >= LONG:
            if start < segment:
                yield start, segment
            # It is cut by itself, whatever is before it.
            yield from _text_spans(data, view, segment, end)
            start = end
        elif end - start >= SMALLEST and (
            length >= SMALLEST or end - start >= LONG or not crc32(view[segment:end]) & _MASK
        ):
            yield start, end
            start = end
        segment = end
    if start < len(data):
        yield start, len(data)


def _ends(data: bytes) -> Iterator[int]:
    for match in _OBJECTS.finditer(data):
        yield match.end()
    yield len(data)


def _text_spans(data: bytes, view: memoryview, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut where the checksum is lower than for `APART` bytes on both sides.

    Such a place is one whatever is further away, and there are as many in text with a match in every word as in text
    with few.
    """
    segment = start
    lowest = best = 0
    for match in _TEXT.finditer(data, start, stop):
        end = match.end()
        checksum = crc32(view[segment:end])
        segment = end
        if best and end - best >= APART:
            yield from _bounded(start, best)
            start, best = best, 0
        if end - start >= APART and (not best or checksum < lowest):
            lowest, best = checksum, end
    yield from _bounded(start, stop)


def _bounded(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for place in range(start, stop, LARGEST):
        yield place, min(place + LARGEST, stop)
