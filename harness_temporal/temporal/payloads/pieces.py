"""Payload data in a media store: cut into pieces under a tree of their names."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from anyio import to_thread

from harness_temporal.errors import MediaCorruptionError, MediaNotFoundError
from harness_temporal.media.batches import each
from harness_temporal.media.known import Known
from harness_temporal.media.protocol import MediaStore
from harness_temporal.media.uri import uri_of
from harness_temporal.recent import Recent
from harness_temporal.temporal.payloads.cutting import cut, most_pieces
from harness_temporal.temporal.payloads.encryption import Sealer
from harness_temporal.temporal.payloads.references import FormatError
from harness_temporal.temporal.payloads.tree import NAME_SIZE, group, names_in

_AT_ONCE: Final = 8
"""Pieces of one payload that are written or read at the same time."""
_CUT_IN_THREAD: Final = 1 << 20
"""Bytes that are cut in a thread."""
_KNOWN: Final = 100_000
"""Pieces that are known to be stored, at most: about 30 MB."""
_KnownBy: TypeAlias = tuple[str | None, bytes]
"""The id of the key that a piece is encrypted with, if any, and the piece's digest."""


class PieceError(Exception):
    """A piece cannot be had, and never will."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f'its piece {uri} {reason}')
        self.uri = uri


class PieceStore:
    """Stores data as pieces, each once.

    Args:
        media_store: Where the pieces are.
        cache_bytes: Bytes of pieces that are kept in memory.
    """

    def __init__(self, media_store: MediaStore, cache_bytes: int) -> None:
        self._media_store = media_store
        self._cache = Recent[bytes, bytes](cache_bytes, len)
        self._known = Known[_KnownBy, bytes](_KNOWN)

    async def store(self, data: bytes, sealer: Sealer | None) -> tuple[int, bytes, int]:
        """Store data.

        Returns:
            When all of it is stored: the depth of its tree, the name of its root, and how many bytes of it were new.
        """
        new = _NewPieces(self._known, sealer)
        # What takes long must not keep the event loop from sending heartbeats.
        pieces = cut(data) if len(data) < _CUT_IN_THREAD else await to_thread.run_sync(cut, data)
        names = [new.add(piece) for piece in pieces] or [new.add(b'')]
        depth = 0
        while len(names) > 1:
            names = [new.add(node) for node in group(names)]
            depth += 1
        await self._put(new)
        return depth, names[0], sum(map(len, new.blobs.values()))

    async def load(self, depth: int, root: bytes, size: int, sealer: Sealer | None) -> bytes:
        """Return what was stored under a root, so many bytes.

        Raises:
            PieceError: A piece is missing, damaged, or needs another key, or the root leads to more than that.
        """
        names = [root]
        for _ in range(depth):
            nodes = await self._get_all(names, sealer)
            # A node may have one name many times: without this, a few bytes would stand for any number.
            if sum(len(nodes[name]) for name in names) > most_pieces(size) * NAME_SIZE:
                raise _too_much(root, size)
            names = [name for node_name in names for name in _names_in(node_name, nodes[node_name])]
        pieces = await self._get_all(names, sealer)
        if sum(len(pieces[name]) for name in names) > size:
            raise _too_much(root, size)
        return b''.join([pieces[name] for name in names])

    async def _put(self, new: _NewPieces) -> None:
        put_at = time.monotonic()
        await each(self._media_store.put, new.blobs.values(), at_once=_AT_ONCE)
        # Only now: who finds a piece among the known ones refers to it at once.
        for key, name, piece in new.pieces:
            self._known.put(key, name, put_at=put_at)
            self._cache.put(name, piece)

    async def _get_all(self, names: Sequence[bytes], sealer: Sealer | None) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        missing: list[bytes] = []
        for name in dict.fromkeys(names):
            piece = self._cache.get(name)
            if piece is None:
                missing.append(name)
            else:
                found[name] = piece
        pieces = await each(partial(self._get, sealer=sealer), missing, at_once=_AT_ONCE)
        for name, piece in zip(missing, pieces, strict=True):
            self._cache.put(name, piece)
            found[name] = piece
        return found

    async def _get(self, name: bytes, sealer: Sealer | None) -> bytes:
        uri = uri_of(name.hex())
        try:
            blob = await self._media_store.get(uri)
        except MediaNotFoundError as error:
            raise PieceError(uri, 'is missing from the media store') from error
        except MediaCorruptionError as error:
            raise PieceError(uri, f'is damaged: {error}') from error
        try:
            return blob if sealer is None else sealer.open_piece(blob)
        except FormatError as error:
            raise PieceError(uri, f'cannot be decrypted: {error}') from error


class _NewPieces:
    """Names pieces, and collects those that are not known to be stored."""

    def __init__(self, known: Known[_KnownBy, bytes], sealer: Sealer | None) -> None:
        self._known = known
        self._sealer = sealer
        self._names: dict[bytes, bytes] = {}
        self.blobs: dict[bytes, bytes] = {}
        """What is to be stored, by name."""
        self.pieces: list[tuple[_KnownBy, bytes, bytes]] = []
        """Of each blob: what it is known by, its name, its piece."""

    def add(self, piece: bytes) -> bytes:
        """Return the name of a piece: the SHA-256 of what is stored of it."""
        digest = hashlib.sha256(piece).digest()
        key = (self._sealer.key_id if self._sealer is not None else None, digest)
        name = self._names.get(digest) or self._known.get(key)
        if name is None:
            blob = piece if self._sealer is None else self._sealer.seal_piece(piece)
            name = digest if self._sealer is None else hashlib.sha256(blob).digest()
            self.blobs[name] = blob
            self.pieces.append((key, name, piece))
        self._names[digest] = name
        return name


def _too_much(root: bytes, size: int) -> PieceError:
    return PieceError(uri_of(root.hex()), f'leads to more than the {size} bytes that it is said to have')


def _names_in(name: bytes, node: bytes) -> list[bytes]:
    try:
        return names_in(node)
    except ValueError as error:
        raise PieceError(uri_of(name.hex()), f'is damaged: {error}') from error
