"""How payloads of this package look in a Temporal history. Pure; for ever."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload

from harness_temporal.temporal.payloads.tree import DEEPEST, NAME_SIZE

ENCODING: Final = 'encoding'
"""Temporal's own metadata key."""
PIECES: Final = b'binary/harness-pieces-v1'
"""A payload whose data is in a media store; see `Reference`."""
SEALED: Final = b'binary/harness-sealed-v1'
"""An encrypted payload; see `encryption`. What is inside may be a reference."""
KEY_ID: Final = 'harness-key'
"""Metadata of a sealed payload: the id of its key."""

_HEAD = struct.Struct(f'>BQ{NAME_SIZE}s')


class FormatError(Exception):
    """Stored bytes are not what they should be."""


@dataclass(frozen=True)
class Reference:
    """What is left of a payload whose data is in a media store."""

    depth: int
    """Levels of the tree of names; with none the root is the only piece."""
    size: int
    """Bytes of the data."""
    root: bytes
    rest: bytes
    """The payload without its data."""

    def to_payload(self) -> Payload:
        """Return the payload for the history."""
        return Payload(metadata={ENCODING: PIECES}, data=_HEAD.pack(self.depth, self.size, self.root) + self.rest)

    @classmethod
    def of(cls, payload: Payload) -> Reference:
        """Read what `to_payload` wrote.

        Raises:
            FormatError: It is something else.
        """
        try:
            depth, size, root = _HEAD.unpack_from(payload.data)
        except struct.error as error:
            raise FormatError(f'it is no reference ({error})') from error
        if depth > DEEPEST:
            raise FormatError(f'its tree has {depth} levels')
        return cls(depth, size, root, payload.data[_HEAD.size :])

    def restored(self, data: bytes) -> Payload:
        """Return the payload as it was.

        Raises:
            FormatError: It cannot be.
        """
        if len(data) != self.size:
            raise FormatError(f'its pieces have {len(data)} bytes, not {self.size}')
        try:
            payload = Payload.FromString(self.rest)
        except DecodeError as error:
            raise FormatError(f'its metadata is damaged ({error})') from error
        payload.data = data
        return payload


def without_data(payload: Payload) -> bytes:
    """Return everything of a payload but its data."""
    rest = Payload()
    rest.CopyFrom(payload)
    rest.ClearField('data')
    return rest.SerializeToString(deterministic=True)
