"""AES-256-GCM for payloads and for their pieces.

A payload in the history is sealed with a random nonce: equal payloads look different. A *piece* is sealed with a nonce
that follows from its content and the key, so that equal pieces are equal ciphertexts and are stored once. Three keys
are derived from each data key, so that a random nonce and a derived one never meet under one key.

What equality of pieces reveals. Who sees the media store and has no key sees the number of pieces, their sizes and when
they were put, which is also when payloads share one. He cannot test a guess, since the nonce comes from a keyed hash.
But who sees the store *and* can have text of his own encrypted with the same key, such as another tenant of the same
workers, can: if a text of his adds no piece, it was there before. The answer is a key for each tenant (a
`PayloadStorage` each): under different keys equal pieces have nothing in common. Without encryption the names of pieces
are digests of plain text, and what they name is plain text as well.

A derived nonce has 96 bits, so two different pieces share one with a probability of about n² / 2**97: 2**-33 for four
billion pieces under one key. Rotate the key before.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Final

from temporalio.api.common.v1 import Payload

from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal.payloads.keys import Key
from harness_temporal.temporal.payloads.references import ENCODING, KEY_ID, SEALED, FormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_SIZE: Final = 12
PAYLOAD_PURPOSE: Final = b'harness-temporal payload v1'
PIECE_PURPOSE: Final = b'harness-temporal piece v1'
NONCE_PURPOSE: Final = b'harness-temporal piece nonce v1'
"""What each derived key is for. The first two are also authenticated with what they seal."""


class Sealer:
    """Encrypts and decrypts with one key.

    Raises:
        ConfigurationError: The extra `crypto` is not installed.
    """

    def __init__(self, key: Key) -> None:
        self.key_id = key.id
        self._payloads = _cipher(_derived(key, PAYLOAD_PURPOSE))
        self._pieces = _cipher(_derived(key, PIECE_PURPOSE))
        self._nonces = _derived(key, NONCE_PURPOSE)

    def seal(self, payload: Payload) -> Payload:
        """Encrypt a payload with all that is in it."""
        nonce = os.urandom(NONCE_SIZE)
        sealed = self._payloads.encrypt(nonce, payload.SerializeToString(), PAYLOAD_PURPOSE)
        return Payload(metadata={ENCODING: SEALED, KEY_ID: self.key_id.encode()}, data=nonce + sealed)

    def open(self, payload: Payload) -> Payload:
        """Decrypt a payload.

        Raises:
            FormatError: It was sealed with another key, or was changed.
        """
        return Payload.FromString(_decrypted(self._payloads, payload.data, PAYLOAD_PURPOSE))

    def seal_piece(self, piece: bytes) -> bytes:
        """Encrypt a piece. Equal pieces give equal bytes."""
        nonce = hmac.digest(self._nonces, piece, 'sha256')[:NONCE_SIZE]
        return nonce + self._pieces.encrypt(nonce, piece, PIECE_PURPOSE)

    def open_piece(self, blob: bytes) -> bytes:
        """Decrypt a piece.

        Raises:
            FormatError: It was sealed with another key, or was changed.
        """
        return _decrypted(self._pieces, blob, PIECE_PURPOSE)


def _derived(key: Key, purpose: bytes) -> bytes:
    # HKDF (RFC 5869) without a salt: the secret is uniform. One block is all that is needed.
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), key.secret, 'sha256')
    return hmac.digest(extracted, purpose + b'\x01', 'sha256')


def _decrypted(cipher: AESGCM, data: bytes, purpose: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(data[:NONCE_SIZE], data[NONCE_SIZE:], purpose)
    except (InvalidTag, ValueError) as error:
        raise FormatError('it was encrypted with another key of the same id, or it was changed') from error


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            'Encryption of payloads needs the `crypto` extra: pip install "harness-temporal[crypto]"'
        ) from error
    return AESGCM(key)
