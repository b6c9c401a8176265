"""What a key strategy may give: a path within the store, and nothing that leaves it."""

from __future__ import annotations

import re

from harness_temporal.errors import ConfigurationError

_DIGEST = re.compile(r'(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])')
_LONGEST = 1024
_LONGEST_NAME = 180


def checked_key(key: str) -> str:
    """Return a key that a key strategy gave.

    Raises:
        ConfigurationError: It is not a relative path of plain names, or is too long.
    """
    reason = _refusal(key)
    if reason is not None:
        raise ConfigurationError(f'The key strategy gives {key[:200]!r}, which {reason}.')
    return key


def digest_in(key: str) -> str | None:
    """Return the digest that a key names, if it names one. A blob without one in its key is never collected."""
    found = _DIGEST.findall(key)
    return found[-1] if found else None


def _refusal(key: str) -> str | None:
    names = key.split('/')
    if not all(names):
        return 'is no relative path'
    if any(name in ('.', '..') for name in names):
        return 'leaves the store, or names it twice'
    if re.search(r'[\x00-\x1f\x7f\\:]', key) or not key.isprintable():
        return 'has a character that is no part of a name everywhere'
    if len(key.encode()) > _LONGEST or any(len(name.encode()) > _LONGEST_NAME for name in names):
        return 'is too long'
    return None
