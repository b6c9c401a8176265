"""Media stores: blobs under the digest of their content. Each backend's driver is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.lazy import lazy_exports
from harness_temporal.media.blob import StoredBlob
from harness_temporal.media.context import (
    KeyStrategy,
    MediaContext,
    PublicUrlResolver,
    default_key_strategy,
    make_static_public_url,
)
from harness_temporal.media.disk import DiskMediaStore
from harness_temporal.media.externalizer import MediaExternalizer
from harness_temporal.media.protocol import BaseMediaStore, MediaStore
from harness_temporal.media.sqlite import SqliteMediaStore
from harness_temporal.media.uri import media_uri

if TYPE_CHECKING:
    from harness_temporal.media.mongo import MongoMediaStore as MongoMediaStore
    from harness_temporal.media.postgres import PostgresMediaStore as PostgresMediaStore
    from harness_temporal.media.s3 import S3MediaStore as S3MediaStore

# Names that need an extra are importable but not in `__all__`: `import *` works without it.
__all__ = [
    'BaseMediaStore',
    'DiskMediaStore',
    'KeyStrategy',
    'MediaExternalizer',
    'MediaContext',
    'MediaStore',
    'PublicUrlResolver',
    'SqliteMediaStore',
    'StoredBlob',
    'default_key_strategy',
    'make_static_public_url',
    'media_uri',
]


__getattr__ = lazy_exports(
    __name__,
    {
        'MongoMediaStore': 'harness_temporal.media.mongo',
        'PostgresMediaStore': 'harness_temporal.media.postgres',
        'S3MediaStore': 'harness_temporal.media.s3',
    },
)
