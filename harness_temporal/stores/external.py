r"""The stored form of a body whose large parts are kept as blobs, or that is encrypted. Pure.

It is `\x02`, one line of JSON that says what goes where, and the rest of the body. A part is the inside of a JSON
string: a text, or the Base64 form of bytes (whose blob is the bytes). Putting the parts back gives the very bytes that
were cut, so the format knows nothing of messages, and nothing inside a body can be taken for it. A body that starts
with `\x02` itself is kept in this form too, without parts, and so is one that starts with `\x03`.

With a key (version 2) each part is encrypted, and the rest is sealed (`stores.sealing`) together with the line before
it, in which the references stay readable: what is referred to can be told without the key. A body without large parts
is then in the sealed form alone.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from pydantic_core import to_json

from harness_temporal.errors import InvalidMediaUriError, StoreCorruptionError, StoreSchemaError
from harness_temporal.media.uri import digest_of, media_uri
from harness_temporal.stores.sealing import MARK as SEALED
from harness_temporal.stores.sealing import Sealer

_MARK = b'\x02'
_VERSION = 1
_SEALED_VERSION = 2
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_BEFORE_BYTES = b'{"data":'
_AFTER_BYTES = re.compile(rb',"media_type":"([^"\\]*)"')
_TEXT_TYPE = 'text/plain; charset=utf-8'

Form = Literal['text', 'base64', 'base64url']


_BASE64: Mapping[Form, Callable[[bytes], bytes]] = {'base64url': urlsafe_b64decode, 'base64': b64decode}


@dataclass(frozen=True)
class Reference:
    """Where a blob belongs in the rest of a body."""

    at: int
    """How many bytes of the rest come before it."""
    uri: str
    form: Form


@dataclass(frozen=True)
class Part:
    """What was cut out of a body, as it is stored."""

    data: bytes
    media_type: str | None
    """`None` if it is encrypted."""


@dataclass(frozen=True)
class ExternalBody:
    """A stored form that was read."""

    references: Sequence[Reference]
    rest: bytes
    head: bytes
    """What comes before the rest."""
    is_sealed: bool

    def opened(self, sealer: Sealer) -> ExternalBody:
        """Decrypt the rest.

        Raises:
            DecryptionError: It was sealed with another key, or was changed.
        """
        return replace(self, rest=sealer.open(self.rest, self.head), is_sealed=False)

    def join(self, blobs: Mapping[str, bytes]) -> bytes:
        """Return the body, given what the references name by URI."""
        body = bytearray()
        end = 0
        for reference in self.references:
            body += self.rest[end : reference.at]
            body += _inside(reference.form, blobs[reference.uri])
            end = reference.at
        return bytes(body + self.rest[end:])


def cut(body: bytes, threshold: int | None, sealer: Sealer | None = None) -> tuple[bytes, list[Part]]:
    """Return the stored form of a body and the parts of at least `threshold` bytes that are not in it.

    Args:
        body: The body.
        threshold: Without one, no part is cut out.
        sealer: Encrypts the rest and each part.
    """
    if threshold is None:
        threshold = len(body) + 1
    found: list[Reference] = []
    parts: dict[str, Part] = {}
    rest = bytearray()
    end = 0
    # No string is longer than the body, and none is shorter than the part that it is the JSON form of.
    for match in _STRING.finditer(body) if len(body) >= threshold else ():
        if match.end(1) - match.start(1) < threshold:
            continue
        form, part = _part(body, match)
        if part is None or len(part.data) < threshold:
            continue
        if sealer is not None:
            part = Part(sealer.seal_part(part.data), None)
        rest += body[end : match.start(1)]
        uri = media_uri(part.data)
        found.append(Reference(len(rest), uri, form))
        parts[uri] = part
        end = match.end(1)
    if not parts and sealer is not None:
        return sealer.seal(body), []
    if not parts and is_plain(body):
        return body, []
    rest += body[end:]
    head = _head(found, _VERSION if sealer is None else _SEALED_VERSION)
    return head + (bytes(rest) if sealer is None else sealer.seal(bytes(rest), head)), list(parts.values())


def parse(stored: bytes) -> ExternalBody:
    """Read a stored form.

    Raises:
        StoreSchemaError: A newer release wrote it.
        StoreCorruptionError: It is damaged.
    """
    head, line_feed, rest = stored.partition(b'\n')
    try:
        values: Any = json.loads(head[len(_MARK) :])
        version = values['version']
        if version in (_VERSION, _SEALED_VERSION):
            found = [Reference(**item) for item in values['parts']]
            # What is encrypted is authenticated with the head, and longer than it was.
            _check(found, len(rest))
            return ExternalBody(found, rest, head + line_feed, version == _SEALED_VERSION)
    except (ValueError, TypeError, KeyError, InvalidMediaUriError) as error:
        raise StoreCorruptionError('external parts', f'a body cannot be read: {error}.') from error
    raise StoreSchemaError('external parts', f'a body has the format {version!r}, which a newer release made.')


def digests_in(stored: bytes | None) -> Sequence[str]:
    """Return the digests of the blobs that a stored body refers to.

    Raises:
        StoreSchemaError: A newer release wrote it.
        StoreCorruptionError: It is damaged.
    """
    if stored is None or not is_external(stored):
        return []
    return [digest_of(reference.uri) for reference in parse(stored).references]


def is_external(stored: bytes) -> bool:
    """Whether this is the form that can have parts elsewhere."""
    return stored.startswith(_MARK)


def is_plain(stored: bytes) -> bool:
    """Whether this is the body itself."""
    return not stored.startswith((_MARK, SEALED))


def _part(body: bytes, match: re.Match[bytes]) -> tuple[Form, Part | None]:
    """Return the part that the inside of a JSON string is the form of, if putting it back would give the same."""
    inside = match[1]
    media_type = _AFTER_BYTES.match(body, match.end())
    if media_type and body.endswith(_BEFORE_BYTES, 0, match.start()):
        for form, decode in _BASE64.items():
            try:
                data = decode(inside)
            except ValueError:
                continue
            if _inside(form, data) == inside:
                return form, Part(data, media_type[1].decode('utf-8', 'replace'))
    try:
        data = cast(str, json.loads(match[0])).encode()
    except ValueError:
        return 'text', None
    return 'text', Part(data, _TEXT_TYPE) if _inside('text', data) == inside else None


def _inside(form: Form, data: bytes) -> bytes:
    match form:
        case 'text':
            return to_json(data.decode())[1:-1]
        case 'base64':
            return b64encode(data)
        case 'base64url':
            return urlsafe_b64encode(data)


def _head(found: Sequence[Reference], version: int) -> bytes:
    parts = [vars(reference) for reference in found]
    return _MARK + json.dumps({'version': version, 'parts': parts}, separators=(',', ':')).encode() + b'\n'


def _check(found: Sequence[Reference], length: int) -> None:
    end = 0
    for reference in found:
        digest_of(reference.uri)
        if not end <= reference.at <= length or reference.form not in get_args(Form):
            raise ValueError(f'{reference} does not fit')
        end = reference.at
