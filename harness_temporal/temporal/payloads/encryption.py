"""AES-256-GCM for payloads and for their pieces.

A payload in the history is sealed with a random nonce: equal payloads look different. A *piece* is sealed with a nonce
that follows from its content and the key, so that equal pieces are equal ciphertexts and are stored once.

What equality of pieces reveals. Who sees the media store and has no key sees the number of pieces, their sizes and when
they were put, which is also when payloads share one. He cannot test a guess, since the nonce comes from a keyed hash.
But who sees the store *and* can have text of his own encrypted with the same key, such as another tenant of the same
workers, can: if a text of his adds no piece, it was there before. The answer is a key for each tenant (a
`PayloadStorage` each): under different keys equal pieces have nothing in common. Without encryption the names of pieces
are digests of plain text, and what they name is plain text as well.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from temporalio.api.common.v1 import Payload

from harness_temporal.encryption.ciphers import NONCE_SIZE, Cipher, DecryptionError, derived_key
from harness_temporal.encryption.keys import Key
from harness_temporal.temporal.payloads.references import ENCODING, KEY_ID, SEALED, FormatError

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
        self._payloads = Cipher(key, PAYLOAD_PURPOSE)
        self._pieces = Cipher(key, PIECE_PURPOSE)
        self._nonces = derived_key(key, NONCE_PURPOSE)

    def seal(self, payload: Payload) -> Payload:
        """Encrypt a payload with all that is in it."""
        sealed = self._payloads.encrypt(payload.SerializeToString())
        return Payload(metadata={ENCODING: SEALED, KEY_ID: self.key_id.encode()}, data=sealed)

    def open(self, payload: Payload) -> Payload:
        """Decrypt a payload.

        Raises:
            FormatError: It was sealed with another key, or was changed.
        """
        with _format_errors():
            return Payload.FromString(self._payloads.decrypt(payload.data))

    def seal_piece(self, piece: bytes) -> bytes:
        """Encrypt a piece. Equal pieces give equal bytes."""
        return self._pieces.encrypt(piece, hmac.digest(self._nonces, piece, 'sha256')[:NONCE_SIZE])

    def open_piece(self, blob: bytes) -> bytes:
        """Decrypt a piece.

        Raises:
            FormatError: It was sealed with another key, or was changed.
        """
        with _format_errors():
            return self._pieces.decrypt(blob)


@contextmanager
def _format_errors() -> Generator[None]:
    try:
        yield
    except DecryptionError as error:
        raise FormatError(str(error)) from error
