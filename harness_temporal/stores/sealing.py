r"""The encrypted form of what a store keeps of its users' content.

A sealed body is `\x03`, the version and the id of the key with a space between them, a line feed, and what
`encryption.ciphers` made of the body. A sealed text is `\x03` and the Base64 form of such a body. A text that starts
with `\x03` itself has that character twice; a body that does is kept in its external form (`stores.external`).

The nonce follows from the content, so that a body which is saved again is the same bytes: a save can be repeated, and
equal parts are one blob. What equality reveals: who sees the store and has no key sees which ledger values, responses,
texts and blobs are equal, their sizes, and when they came. He cannot test a guess with them, unless he can have text of
his own encrypted with the same key, and look whether it adds a blob. The answer to that is a store and a key for each
tenant.

A message is named by the digest of its plain form, also where it is sealed, because histories are built of those names:
in the store, in Temporal and between processes. So who sees the store can test a guess of a whole message, to the last
byte and with the time of each of its parts to the microsecond. The key of a tool call has a digest of its arguments
(`identity.tool_call_key`), and so lets guesses of them be tested too.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from typing import Final

from harness_temporal.encryption.ciphers import NONCE_SIZE, Cipher, DecryptionError, check_installed, derived_key
from harness_temporal.encryption.keys import Key, KeyRing
from harness_temporal.errors import MissingKeyError, StoreCorruptionError, StoreSchemaError

MARK: Final = b'\x03'
_TEXT_MARK = MARK.decode()
_VERSION = 1
_HEAD = re.compile(rb'\x03(\d{1,9}) (?:([A-Za-z0-9_.-]{1,64})\n)?')
_TEXT_CONTEXT = b'text'

BODY_PURPOSE: Final = b'harness-temporal body v1'
BODY_NONCE_PURPOSE: Final = b'harness-temporal body nonce v1'
PART_PURPOSE: Final = b'harness-temporal part v1'
PART_NONCE_PURPOSE: Final = b'harness-temporal part nonce v1'
"""What each derived key is for. Nothing may be encrypted for two purposes under one key."""


class Sealer:
    """Encrypts and decrypts with one key."""

    def __init__(self, key: Key) -> None:
        self.key_id = key.id
        self._head = MARK + f'{_VERSION} {key.id}\n'.encode()
        self._bodies = _Deterministic(key, BODY_PURPOSE, BODY_NONCE_PURPOSE)
        self._parts = _Deterministic(key, PART_PURPOSE, PART_NONCE_PURPOSE)

    def seal(self, body: bytes, context: bytes = b'') -> bytes:
        """Encrypt a body. What is before it, `context`, is authenticated with it."""
        return self._head + self._bodies.encrypt(body, self._head + context)

    def open(self, stored: bytes, context: bytes = b'') -> bytes:
        """Decrypt a body whose key this is.

        Raises:
            DecryptionError: It was sealed with another key or context, or was changed.
        """
        return self._bodies.decrypt(stored[len(self._head) :], self._head + context)

    def seal_part(self, data: bytes) -> bytes:
        """Encrypt what becomes a blob. What refers to it is a body that is sealed with the same key."""
        return self._parts.encrypt(data)

    def open_part(self, blob: bytes) -> bytes:
        """Decrypt a blob.

        Raises:
            DecryptionError: It was sealed with another key, or was changed.
        """
        return self._parts.decrypt(blob)

    def seal_text(self, text: str) -> str:
        """Encrypt a text."""
        return _TEXT_MARK + b64encode(self.seal(text.encode('utf-8', 'surrogatepass'), _TEXT_CONTEXT)).decode()


class Sealers:
    """The sealers of a ring's keys.

    Raises:
        ConfigurationError: The extra `crypto` is not installed.
    """

    def __init__(self, keys: KeyRing) -> None:
        check_installed()
        self._keys = keys
        self._sealers: dict[Key, Sealer] = {}

    async def newest(self) -> Sealer:
        """Return what encrypts.

        Raises:
            ConfigurationError: The source of the keys has none, or wrong ones.
        """
        return self._of(await self._keys.newest())

    async def named(self, key_id: str) -> Sealer | None:
        """Return what decrypts with the key of that id; `None` if it is not among the keys.

        Raises:
            ConfigurationError: The source of the keys has none, or wrong ones.
        """
        key = await self._keys.get(key_id)
        return None if key is None else self._of(key)

    def _of(self, key: Key) -> Sealer:
        if key not in self._sealers:
            self._sealers[key] = Sealer(key)
        return self._sealers[key]


async def sealer_of(sealers: Sealers | None, stored: bytes, owner: str) -> Sealer:
    """Return what decrypts a sealed body. `owner` is whose it is, for errors.

    Raises:
        MissingKeyError: The key is not there.
        StoreSchemaError: A newer release wrote it.
        StoreCorruptionError: It does not say which key it has.
    """
    head = _HEAD.match(stored)
    if head is not None and int(head[1]) != _VERSION:
        raise StoreSchemaError(
            'encryption', f'{owner} has content of the format {int(head[1])}, which a newer release made.'
        )
    if head is None or head[2] is None:
        raise StoreCorruptionError('encryption', f'{owner} has content that does not say which key it has.')
    key_id = head[2].decode()
    sealer = None if sealers is None else await sealers.named(key_id)
    if sealer is None:
        raise MissingKeyError(owner, key_id, has_keys=sealers is not None)
    return sealer


def is_sealed(stored: bytes) -> bool:
    """Whether a body is in the sealed form."""
    return stored.startswith(MARK)


def damaged(owner: str, error: DecryptionError) -> StoreCorruptionError:
    """Return the error for content that does not decrypt."""
    return StoreCorruptionError('encryption', f'{owner} has content that cannot be decrypted: {error}.')


def plain_text(text: str) -> str:
    """Return the stored form of a text that is not encrypted."""
    return _TEXT_MARK + text if text.startswith(_TEXT_MARK) else text


async def restored_text(sealers: Sealers | None, stored: str, owner: str) -> str:
    """Return the text of a stored form, encrypted or not.

    Raises:
        MissingKeyError: The key is not there.
        StoreSchemaError: A newer release wrote it.
        StoreCorruptionError: It is damaged.
    """
    if not stored.startswith(_TEXT_MARK):
        return stored
    rest = stored[len(_TEXT_MARK) :]
    if rest.startswith(_TEXT_MARK):
        return rest
    try:
        sealed = b64decode(rest, validate=True)
    except ValueError as error:
        raise StoreCorruptionError('encryption', f'{owner} has a text that cannot be read: {error}.') from error
    sealer = await sealer_of(sealers, sealed, owner)
    try:
        return sealer.open(sealed, _TEXT_CONTEXT).decode('utf-8', 'surrogatepass')
    except DecryptionError as error:
        raise damaged(owner, error) from error


class _Deterministic:
    """Equal data with equal context is equal ciphertext."""

    def __init__(self, key: Key, purpose: bytes, nonce_purpose: bytes) -> None:
        self._cipher = Cipher(key, purpose)
        self._nonces = derived_key(key, nonce_purpose)

    def encrypt(self, data: bytes, context: bytes = b'') -> bytes:
        # The nonce follows from the context too: one nonce for two contexts would give the key of the tags away.
        nonce = hmac.new(self._nonces, len(context).to_bytes(8, 'big') + context, 'sha256')
        nonce.update(data)
        return self._cipher.encrypt(data, nonce.digest()[:NONCE_SIZE], context)

    def decrypt(self, sealed: bytes, context: bytes = b'') -> bytes:
        return self._cipher.decrypt(sealed, context)
