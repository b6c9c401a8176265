"""The documents of a blob: its manifest, and the chunks of the upload that the manifest names.

A manifest is named by the digest. A chunk is named by the digest, by the upload that wrote it and by its place in that
upload: two uploads of one blob never share a chunk, so either of them can be removed, and split as it likes.
All of these names are bytes. They sort in this order, and documents that somebody else named otherwise are never met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from harness_temporal.errors import MediaCorruptionError, NotStorableError
from harness_temporal.media.blob import Blob, StoredBlob
from harness_temporal.media.context import MediaContext
from harness_temporal.media.metadata import dump_metadata
from harness_temporal.media.uri import uri_of
from harness_temporal.records import from_microseconds
from harness_temporal.text import escape

Document: TypeAlias = dict[str, Any]
T = TypeVar('T')

LARGEST: Final = 15 << 20
"""Bytes of a chunk, or of what is said about a blob: a document has at most 16 MiB, with everything in it."""
DIGEST: Final = 32
UPLOAD: Final = DIGEST + 16
"""Bytes of an upload's name, which begins with the digest."""
CHUNK_NAME: Final = UPLOAD + 4


@dataclass(frozen=True)
class Manifest:
    """Where the bytes of a blob are."""

    size: int
    upload: bytes
    chunk_size: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Manifest:
        """Read a manifest.

        Raises:
            MediaCorruptionError: It is none.
        """
        found = cls(value(document, 'size', int), value(document, 'upload', bytes), value(document, 'chunk_size', int))
        if found.chunk_size <= 0:
            raise _damaged(document, 'chunk_size')
        return found


def new_manifest(blob: Blob, context: MediaContext, chunk_size: int) -> Document:
    """Return the manifest of a new upload, without the time of the last put.

    Raises:
        NotStorableError: What is said about the blob does not fit into a document.
    """
    name = bytes.fromhex(blob.digest)
    metadata = dump_metadata(context.metadata)
    media_type = {} if context.media_type is None else {'media_type': escape(context.media_type)}
    if len(metadata) + sum(len(text.encode()) for text in media_type.values()) > LARGEST:
        raise NotStorableError('MediaContext', f'with its metadata it has more than {LARGEST} bytes.')
    return {
        '_id': name,
        'size': blob.size,
        'upload': name + uuid4().bytes,
        'chunk_size': chunk_size,
        'metadata': metadata.decode(),
        **media_type,
    }


def stored_blob(document: Mapping[str, Any]) -> StoredBlob:
    """Return what a manifest says of its blob.

    Raises:
        MediaCorruptionError: It is no manifest.
    """
    touched_at = from_microseconds(value(document, 'touched_at', int))
    return StoredBlob(document['_id'].hex(), value(document, 'size', int), touched_at)


def value(document: Mapping[str, Any], field: str, kind: type[T]) -> T:
    """Return a field of a manifest.

    Raises:
        MediaCorruptionError: It is missing, or something else.
    """
    found = document.get(field)
    if not isinstance(found, kind):
        raise _damaged(document, field)
    return found


def chunk_name(upload: bytes, index: int) -> bytes:
    """Return the name of a chunk."""
    return upload + index.to_bytes(CHUNK_NAME - UPLOAD, 'big')


def _damaged(document: Mapping[str, Any], field: str) -> MediaCorruptionError:
    return MediaCorruptionError(uri_of(document['_id'].hex()), f'its manifest has no usable `{field}`.')
