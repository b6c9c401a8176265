"""How payloads cross the Temporal boundary: the settings, and how they get into a data converter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
)

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import ConfigurationError
from harness_temporal.media.protocol import MediaStore
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.payloads.codec import HarnessPayloadCodec
from harness_temporal.temporal.payloads.converter import is_limited, limited_converter
from harness_temporal.temporal.payloads.pieces import PieceStore

SERVER_LIMIT: Final = 2 * 1024 * 1024 - 16 * 1024
"""Bytes of a value that Temporal takes by default, with room for what encryption adds."""
DEFAULT_THRESHOLD: Final = 1024
DEFAULT_LIMIT: Final = 64 * 1024 * 1024
DEFAULT_CACHE: Final = 64 * 1024 * 1024


class PayloadStorage:
    """Keeps large payloads in a media store, each part once, and encrypts all payloads if there are keys.

    Args:
        media_store: Where the data of large payloads goes. It needs a store, folder, prefix or schema of its own: what
            is in it goes by age (`expire_payloads`), and `StoreMaintenance.collect` of a step store that shares it
            would delete it. `None` keeps all in Temporal's history, which takes 2 MiB per value.
        keys: Keys to encrypt with; needs the `crypto` extra. The messages and traces of errors are encrypted as well,
            not so the names of workflows, activities and error types, ids, headers and search attributes.
        threshold_bytes: Payloads with so much data are stored.
        limit_bytes: What a value may have, as a payload. More ends the call with a `PayloadTooLargeError`.
            64 MiB by default, without a media store what Temporal takes. A change may end runs that are under way.
        cache_bytes: Bytes of pieces that a process keeps in memory.

    Raises:
        ConfigurationError: A number is out of range, or there is neither a media store nor a key.
    """

    def __init__(
        self,
        media_store: MediaStore | None,
        *,
        keys: KeyRing | None = None,
        threshold_bytes: int = DEFAULT_THRESHOLD,
        limit_bytes: int | None = None,
        cache_bytes: int = DEFAULT_CACHE,
    ) -> None:
        if media_store is None and keys is None:
            raise ConfigurationError('`PayloadStorage` needs a media store, keys, or both.')
        if threshold_bytes < 1:
            raise ConfigurationError(f'`threshold_bytes` must be at least 1, got {threshold_bytes}.')
        if cache_bytes < 0:
            raise ConfigurationError(f'`cache_bytes` must not be negative, got {cache_bytes}.')
        if limit_bytes is None:
            limit_bytes = DEFAULT_LIMIT if media_store is not None else SERVER_LIMIT
        if limit_bytes < 1:
            raise ConfigurationError(f'`limit_bytes` must be at least 1, got {limit_bytes}.')
        self.media_store = media_store
        self.limit_bytes = limit_bytes
        self.encrypts = keys is not None
        self._keys = keys
        self._threshold_bytes = threshold_bytes
        self._cache_bytes = cache_bytes

    @cached_property
    def codec(self) -> HarnessPayloadCodec:
        """The codec, with a cache that all who use it share."""
        pieces = PieceStore(self.media_store, self._cache_bytes) if self.media_store is not None else None
        return HarnessPayloadCodec(pieces, self._keys, self._threshold_bytes)

    def check_apart(self, stores: Iterable[StepStore]) -> None:
        """Make sure that the media store is none of these stores'.

        Raises:
            ConfigurationError: It is.
        """
        for store in stores:
            if self.media_store is not None and getattr(store, 'media_store', None) is self.media_store:
                raise ConfigurationError(
                    f'`PayloadStorage` and a `{type(store).__name__}` share a media store: the collection of each '
                    'would delete what belongs to the other. Give the payloads a folder, prefix or schema of their own.'
                )


def with_payload_storage(converter: DataConverter, storage: PayloadStorage | None) -> DataConverter:
    """Return a data converter that stores and encrypts as `storage` says, and refuses what is too large.

    Raises:
        ConfigurationError: It has another codec.
    """
    if storage is not None and converter.payload_codec is not storage.codec:
        if converter.payload_codec is not None:
            raise ConfigurationError(
                f'The data converter has the codec {type(converter.payload_codec).__name__!r}, and `payloads=` brings '
                'another. Only one can be: leave `payloads=` out, or let its `keys=` do the encryption.'
            )
        converter = replace(converter, payload_codec=storage.codec)
    if storage is not None and storage.encrypts and converter.failure_converter_class is DefaultFailureConverter:
        # The message of an error is outside of any payload by default, and may quote what a tool was given.
        converter = replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    base = converter.payload_converter_class
    if is_limited(base) or not issubclass(base, PydanticPayloadConverter):
        return converter
    limit = storage.limit_bytes if storage is not None else SERVER_LIMIT
    return replace(converter, payload_converter_class=limited_converter(base, limit))
