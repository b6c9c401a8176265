"""What a worker remembers of pieces, in bounded memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from harness_temporal.stores.externalizer import KNOWN_FOR

_KNOWN: Final = 100_000
"""Pieces that are known to be stored, at most: about 30 MB."""

_Key = TypeVar('_Key', bound=Hashable)


class PieceCache:
    """The bytes of pieces that were written or read lately, by name."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: OrderedDict[bytes, bytes] = OrderedDict()
        self.size = 0
        """Bytes of the pieces that it holds."""

    def get(self, name: bytes) -> bytes | None:
        """Return a piece, if it is there."""
        piece = self._pieces.get(name)
        if piece is not None:
            self._pieces.move_to_end(name)
        return piece

    def add(self, name: bytes, piece: bytes) -> None:
        """Keep a piece, and forget those that were not used for the longest time."""
        if name in self._pieces:
            self._pieces.move_to_end(name)
            return
        self._pieces[name] = piece
        self.size += len(piece)
        while self.size > self._max_bytes:
            _, forgotten = self._pieces.popitem(last=False)
            self.size -= len(forgotten)


class KnownPieces(Generic[_Key]):
    """Which pieces this process put within the last hour, and under which names.

    For an hour only, so that a piece is put again, and with that touched, while new payloads refer to it: collection
    goes by age.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, tuple[bytes, float]] = OrderedDict()

    def get(self, key: _Key) -> bytes | None:
        """Return the piece's name, if it was put within the last hour."""
        known = self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def add(self, key: _Key, name: bytes, *, put_at: float) -> None:
        """Remember a piece. `put_at` is the monotonic time before it was put."""
        self._known[key] = name, put_at + KNOWN_FOR
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
