"""The keys that content is encrypted with."""

from __future__ import annotations

import base64
import binascii
import inspect
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from anyio import Lock, to_thread
from anyio.lowlevel import RunVar

from harness_temporal.errors import ConfigurationError

KEYS_VARIABLE: Final = 'HARNESS_PAYLOAD_KEYS'
REFRESH_SECONDS: Final = 300.0
"""How long keys are used before their source is asked again."""
RETRY_SECONDS: Final = 10.0
"""How long after the source was asked it is asked again because of a key that is not known."""
_SECRET_SIZE = 32
_ID = re.compile(r'[A-Za-z0-9_.-]{1,64}')
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Key:
    """One key.

    Raises:
        ConfigurationError: The id is not 1 to 64 of `A-Z a-z 0-9 _ . -`, or the secret has not 32 bytes.
    """

    id: str
    """Is beside all that the key encrypted; not secret."""
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ConfigurationError(
                f'The id of an encryption key is 1 to 64 of `A-Z a-z 0-9 _ . -`, not {self.id[:80]!r}.'
            )
        if len(self.secret) != _SECRET_SIZE:
            raise ConfigurationError(f'The encryption key {self.id!r} has {len(self.secret)} bytes instead of 32.')

    @classmethod
    def generate(cls, id: str) -> Key:
        """Make a new key."""
        return cls(id, os.urandom(_SECRET_SIZE))

    def dump(self) -> str:
        """Return the key as an environment variable or a file holds it. It is secret."""
        return f'{self.id}:{base64.b64encode(self.secret).decode()}'


KeySource: TypeAlias = Callable[[], 'Sequence[Key] | Awaitable[Sequence[Key]]']
"""Gives all keys, the newest first. It is called again every few minutes, and when a key is not known."""


class KeyRing:
    """Keys that all decrypt, of which the first encrypts.

    To rotate, add the new key as the second first, everywhere; then make it the first. Who does not have a key cannot
    read what was encrypted with it. A key may go when no history and no row of a store that it encrypted is left.

    A ring may serve many threads and event loops.

    Args:
        source: Gives the keys, from a key management service for example.
    """

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._keys: dict[str, Key] = {}
        self._asked_at = 0.0
        # A lock belongs to an event loop.
        self._lock = RunVar[Lock]('lock')

    @classmethod
    def of(cls, *keys: Key) -> KeyRing:
        """Return a ring of these keys, the newest first."""
        return cls(lambda: keys)

    @classmethod
    def from_environment(cls, variable: str = KEYS_VARIABLE) -> KeyRing:
        """Return the keys of an environment variable: `id:base64`, the newest first, with spaces between them."""
        return cls(lambda: parse_keys(os.environ.get(variable, ''), f'the environment variable {variable}'))

    @classmethod
    def from_file(cls, path: str | Path) -> KeyRing:
        """Return the keys of a file: `id:base64` in lines, the newest first; `#` begins a comment."""

        def read() -> Sequence[Key]:
            try:
                text = Path(path).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f'The encryption keys cannot be read from {path}: {error}') from error
            return parse_keys(text, str(path))

        async def read_in_thread() -> Sequence[Key]:
            return await to_thread.run_sync(read)

        return cls(read_in_thread)

    async def newest(self) -> Key:
        """Return the key that encrypts.

        Raises:
            ConfigurationError: The source has no keys, or wrong ones.
        """
        if time.monotonic() >= self._asked_at + REFRESH_SECONDS or not self._keys:
            await self._load(older_than=REFRESH_SECONDS)
        return next(iter(self._keys.values()))

    async def get(self, id: str) -> Key | None:
        """Return the key with that id, or `None`, after the source was asked whether it has it by now.

        Raises:
            ConfigurationError: The source has no keys, or wrong ones.
        """
        if id not in self._keys:
            await self._load(older_than=RETRY_SECONDS)
        return self._keys.get(id)

    async def _load(self, *, older_than: float) -> None:
        lock = self._lock.get(None)
        if lock is None:
            lock = Lock()
            self._lock.set(lock)
        async with lock:
            if self._keys and time.monotonic() < self._asked_at + older_than:
                return
            try:
                given = self._source()
                keys = await given if inspect.isawaitable(given) else given
            except Exception:
                if not self._keys:
                    raise
                # The keys at hand still work; a key service that is away must not stop every run.
                _logger.exception('The encryption keys could not be loaded again; the known ones stay in use.')
                self._asked_at = time.monotonic()
                return
            self._keys = _unique(keys)
            self._asked_at = time.monotonic()


def parse_keys(text: str, origin: str) -> Sequence[Key]:
    """Read keys as `id:base64`, with white space between them; `#` begins a comment.

    Raises:
        ConfigurationError: There are none, or something else. The message has no part of a secret.
    """
    entries = [entry for line in text.splitlines() for entry in line.partition('#')[0].split()]
    if not entries:
        raise ConfigurationError(f'There are no encryption keys in {origin}.')
    return [_parse(entry, origin, number) for number, entry in enumerate(entries, 1)]


def _parse(entry: str, origin: str, number: int) -> Key:
    id, separator, secret = entry.partition(':')
    if not separator:
        raise ConfigurationError(f'Encryption key {number} in {origin} is not `id:base64`.')
    try:
        return Key(id, base64.b64decode(secret, validate=True))
    except binascii.Error as error:
        raise ConfigurationError(f'The secret of encryption key {id[:64]!r} in {origin} is not base64.') from error


def _unique(keys: Sequence[Key]) -> dict[str, Key]:
    if not keys:
        raise ConfigurationError('The source of the encryption keys gave none.')
    known = {key.id: key for key in keys}
    if len(known) != len(keys):
        raise ConfigurationError('Two encryption keys have the same id.')
    return known
