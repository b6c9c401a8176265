"""What is kept about a blob in the headers of its object.

S3 makes metadata's keys lower-case, takes ASCII only and strips values. What would not read back exactly goes, as
base64 of JSON, into one header of ours. The rest is sent as it is, for whoever else reads the bucket.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from harness_temporal.errors import MediaCorruptionError, NotStorableError, StoreSchemaError
from harness_temporal.media.context import MediaContext
from harness_temporal.media.metadata import dump_metadata, load_metadata
from harness_temporal.media.s3.errors import STORE

HEADER: Final = 'harness-temporal'
"""The name of our header, after `x-amz-meta-`."""
_VERSION = 1
_PREFIX = 'x-amz-meta-'
_LARGEST = 2048
"""Bytes. AWS does not count the prefix of each name, some others do."""

_PLAIN_KEY = re.compile(r'[a-z0-9]+(-[a-z0-9]+)*')
# Without spaces that are stripped or folded, and without `=?`, which marks text that S3 has encoded itself.
_PLAIN_VALUE = re.compile(r'(?!=\?)[!-~]+( [!-~]+)*')
_CONTENT_TYPE = re.compile(r'[!-~]([ -~]*[!-~])?')


def object_headers(context: MediaContext, digest: str | None) -> dict[str, Any]:
    """Return what boto3 is to be told about an object.

    Args:
        context: What the caller says of the blob.
        digest: The blob's, if the object's key does not name it.

    Raises:
        NotStorableError: S3 does not take it.
    """
    plain = {key: value for key, value in context.metadata.items() if _is_plain(key, value)}
    rest = {key: value for key, value in context.metadata.items() if key not in plain}
    metadata = plain | _our_header(rest, digest)
    size = sum(len(_PREFIX) + len(key) + len(value) for key, value in metadata.items())
    if size > _LARGEST:
        raise NotStorableError('MediaContext.metadata', f'it takes {size} bytes of headers, and S3 takes {_LARGEST}.')
    headers: dict[str, Any] = {'Metadata': metadata}
    if context.media_type:
        if not _CONTENT_TYPE.fullmatch(context.media_type):
            raise NotStorableError('MediaContext.media_type', 'it has characters that no header can carry.')
        headers['ContentType'] = context.media_type
    return headers


def read_metadata(metadata: Mapping[str, str], uri: str) -> dict[str, str]:
    """Return the caller's metadata from that of an object.

    Raises:
        MediaCorruptionError: Our header is not what was written.
        StoreSchemaError: A newer release wrote it.
    """
    # Some servers give names back with capitals.
    found = {key.lower(): value for key, value in metadata.items()}
    ours = found.pop(HEADER, None)
    return found if ours is None else found | load_metadata(_read_header(ours, uri)['metadata'].encode(), uri)


def read_digest(metadata: Mapping[str, str], uri: str) -> str | None:
    """Return the digest that was written because the object's key does not name it."""
    ours = {key.lower(): value for key, value in metadata.items()}.get(HEADER)
    return None if ours is None else _read_header(ours, uri).get('sha256')


def _is_plain(key: str, value: str) -> bool:
    return key != HEADER and bool(_PLAIN_KEY.fullmatch(key) and _PLAIN_VALUE.fullmatch(value))


def _our_header(rest: Mapping[str, str], digest: str | None) -> dict[str, str]:
    if not rest and digest is None:
        return {}
    content: dict[str, object] = {'version': _VERSION, 'metadata': dump_metadata(rest).decode()}
    if digest is not None:
        content['sha256'] = digest
    return {HEADER: base64.b64encode(json.dumps(content, ensure_ascii=False).encode()).decode()}


def _read_header(value: str, uri: str) -> dict[str, str]:
    try:
        content = json.loads(base64.b64decode(value, validate=True))
        version, metadata, digest = content['version'], content['metadata'], content.get('sha256')
        if not isinstance(metadata, str) or not isinstance(digest, str | None):
            raise TypeError('a part of it is no text')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MediaCorruptionError(uri, f'its header `{_PREFIX}{HEADER}` cannot be read: {error}.') from error
    if version != _VERSION:
        raise StoreSchemaError(STORE, f'{uri} has headers of version {version}, which a newer release made.')
    return content
