"""A blob's identity, `media+sha256://<hex>`, is the same in every store (step-persistence seed, "Persisting media")."""

from __future__ import annotations

import hashlib
import re

from harness_temporal.errors import InvalidMediaUriError

_SCHEME = 'media+sha256://'
_URI = re.compile(re.escape(_SCHEME) + r'([0-9a-f]{64})')


def media_uri(data: bytes) -> str:
    """Return the URI of these bytes."""
    return uri_of(hashlib.sha256(data).hexdigest())


def uri_of(digest: str) -> str:
    """Return the URI of the bytes with this SHA-256, in hexadecimal digits."""
    return f'{_SCHEME}{digest}'


def digest_of(uri: str) -> str:
    """Return the SHA-256 that a URI names, in hexadecimal digits.

    Raises:
        InvalidMediaUriError: It is not such a URI.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        raise InvalidMediaUriError(uri)
    return match[1]
