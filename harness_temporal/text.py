"""Keep text of any content storable.

PostgreSQL refuses U+0000 in text, and no encoder takes the lone surrogates that Python makes of undecodable file names.
`escape` turns both into a private-use sequence and back, and leaves every other string as it is.
"""

from __future__ import annotations

import re
from typing import Final

UNSTORABLE: Final = re.compile('[\x00\ud800-\udfff]')
"""What not every store takes in text."""

_MARK = '\uf8ff'
_UNSAFE = re.compile('[\x00\ud800-\udfff\uf8ff]')
_ESCAPED = re.compile(f'{_MARK}([0-9a-f]{{4}})')


def escape(text: str) -> str:
    """Return `text` without U+0000 and lone surrogates. Different inputs give different outputs."""
    return _UNSAFE.sub(lambda match: f'{_MARK}{ord(match[0]):04x}', text)


def unescape(text: str) -> str:
    """Undo `escape`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def escape_key(key: str) -> str:
    """Escape a mapping key, and hide a `kind` key, by which Pydantic AI would take plain data for content."""
    return f'{_MARK}006b{escape(key[1:])}' if key == 'kind' else escape(key)


def as_storable(text: str) -> str:
    """Return `text` with lone surrogates replaced, for a place that only shows it."""
    return text.encode('utf-8', 'backslashreplace').decode('utf-8')
