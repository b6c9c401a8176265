"""AES-256-GCM under keys that are derived from one key, each for one purpose.

A random nonce hides whether two texts are equal. A nonce that follows from the text, under another derived key, makes
equal texts equal ciphertexts, which can be stored once. The two never meet under one derived key. A derived nonce has
96 bits, so two different texts share one with a probability of about n² / 2**97: 2**-33 for four billion texts under
one key. Rotate the key before.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Final

from harness_temporal.encryption.keys import Key
from harness_temporal.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_SIZE: Final = 12


class DecryptionError(Exception):
    """Bytes cannot be decrypted."""


class Cipher:
    """Encrypts for one purpose, which is authenticated with all that it encrypts.

    Raises:
        ConfigurationError: The extra `crypto` is not installed.
    """

    def __init__(self, key: Key, purpose: bytes) -> None:
        self._purpose = purpose
        self._cipher = _aes_gcm()(derived_key(key, purpose))

    def encrypt(self, data: bytes, nonce: bytes | None = None, context: bytes = b'') -> bytes:
        """Encrypt data, by default with a random nonce.

        Args:
            data: What to encrypt.
            nonce: One that no other data or context has under the same key and purpose.
            context: What is authenticated as well, and has to be given to `decrypt` again.
        """
        nonce = os.urandom(NONCE_SIZE) if nonce is None else nonce
        return nonce + self._cipher.encrypt(nonce, data, self._purpose + context)

    def decrypt(self, sealed: bytes, context: bytes = b'') -> bytes:
        """Decrypt what `encrypt` gave.

        Raises:
            DecryptionError: It was encrypted with another key or context, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], self._purpose + context)
        except (InvalidTag, ValueError) as error:
            raise DecryptionError('it was encrypted with another key of the same id, or it was changed') from error


def derived_key(key: Key, purpose: bytes) -> bytes:
    """Return a key for one purpose. It tells nothing of the others, or of what it is derived from."""
    # HKDF (RFC 5869) without a salt: the secret is uniform. One block is all that is needed.
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), key.secret, 'sha256')
    return hmac.digest(extracted, purpose + b'\x01', 'sha256')


def check_installed() -> None:
    """Make sure that something can be encrypted.

    Raises:
        ConfigurationError: The extra `crypto` is not installed.
    """
    _aes_gcm()


def _aes_gcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            'Encryption needs the `crypto` extra: pip install "harness-temporal[crypto]"'
        ) from error
    return AESGCM
