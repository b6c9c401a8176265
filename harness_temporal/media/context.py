"""What a caller says about a blob, and what a store makes of it (step-persistence seed, "MediaContext")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import quote

from harness_temporal.media.uri import digest_of


def _no_metadata() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class MediaContext:
    """What is known about a blob. Every field has a default, and later releases may add fields."""

    media_type: str | None = None
    """Such as `image/png`. Kept with the blob, for those who serve it."""
    filename: str | None = None
    """The original file name, for key strategies and URL resolvers; not kept."""
    metadata: Mapping[str, str] = field(default_factory=_no_metadata)
    """The caller's own tags, which `get_metadata` gives back."""


NO_CONTEXT: Final = MediaContext()

KeyStrategy: TypeAlias = Callable[[str, MediaContext], str]
"""Gives the path of a blob within its store. One that depends on the context needs the same one to read."""

PublicUrlResolver: TypeAlias = Callable[[str, MediaContext], 'str | Awaitable[str | None] | None']
"""Gives the URL from which a model may fetch a blob, or `None`."""


def default_key_strategy(uri: str, context: MediaContext) -> str:
    """Return `<sha256>.bin`."""
    return f'{digest_of(uri)}.bin'


def make_static_public_url(
    base_url: str, *, key_prefix: str = '', key_strategy: KeyStrategy = default_key_strategy
) -> PublicUrlResolver:
    """Return a resolver for blobs that a public bucket or a CDN serves under `base_url`.

    `key_prefix` and `key_strategy` have to be those of the store.
    """

    def resolve(uri: str, context: MediaContext) -> str:
        return f'{base_url.rstrip("/")}/{quote(key_prefix + key_strategy(uri, context))}'

    return resolve
