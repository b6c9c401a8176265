"""The caller's tags of a blob as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness_temporal.errors import MediaCorruptionError
from harness_temporal.text import escape, unescape


def dump_metadata(metadata: Mapping[str, str]) -> bytes:
    """Return metadata as JSON."""
    return json.dumps({escape(key): escape(value) for key, value in metadata.items()}, ensure_ascii=False).encode()


def load_metadata(content: bytes, uri: str) -> dict[str, str]:
    """Read what `dump_metadata` wrote.

    Raises:
        MediaCorruptionError: It is something else.
    """
    try:
        return {unescape(key): unescape(value) for key, value in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise MediaCorruptionError(uri, f'its metadata cannot be read: {error}.') from error
