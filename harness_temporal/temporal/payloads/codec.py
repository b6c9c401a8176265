"""The payload codec: large payloads to a media store, and encryption, in one.

They cannot be two: the SDK's external storage runs after the codec, and what a codec encrypted with random nonces shares
nothing with anything.

What the SDK (1.35) does when a codec raises, and what follows:

| where | the SDK | so here |
| --- | --- | --- |
| decoding in a workflow task | ends the workflow for a non-retryable `ApplicationError`, else fails the task, again and again | a payload that never can be read raises `PayloadUnreadableError`, which is one; a store that is away raises its own error, and the task is tried again |
| the same while replaying | the workflow's end contradicts its history: the task fails, again and again | `stuck` terminates the workflow |
| decoding an activity's input | wraps it in a retryable error: the activity is tried for ever | the codec gives a marker (`unreadable.UNREADABLE`), and `PayloadGuard` raises in its stead |
| encoding an activity's result | the activity fails with that error | `PayloadTooLargeError` ends it at once |
| encoding what a workflow sends | fails the task, again and again, whatever the error | sizes are checked by the payload converter, in workflow code, where an error ends the workflow |
"""  # noqa: E501  # a table has no shorter lines

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Self

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec, SerializationContext, WithSerializationContext

from harness_temporal.encryption.keys import Key, KeyRing
from harness_temporal.observability.observer import Observer
from harness_temporal.temporal.payloads.encryption import Sealer
from harness_temporal.temporal.payloads.errors import PayloadUnreadableError
from harness_temporal.temporal.payloads.owners import is_activity_of_workflow, owner_of, workflow_of
from harness_temporal.temporal.payloads.pieces import PieceError, PieceStore
from harness_temporal.temporal.payloads.references import (
    ENCODING,
    KEY_ID,
    PIECES,
    SEALED,
    FormatError,
    Reference,
    without_data,
)
from harness_temporal.temporal.payloads.unreadable import unreadable_payload


class HarnessPayloadCodec(PayloadCodec, WithSerializationContext):
    """Encodes payloads as `PayloadStorage` says.

    Payloads that it would not write itself, plain ones for example, are decoded as they are, so that storage and
    encryption can be turned on while workflows run.
    """

    def __init__(self, pieces: PieceStore | None, keys: KeyRing | None, threshold: int) -> None:
        self._pieces = pieces
        self._keys = keys
        self._threshold = threshold
        self._sealers: dict[str, Sealer] = {}
        self._context: SerializationContext | None = None
        self._loads_at_most: int | None = None
        self._watchers: list[Callable[[str], None]] = []
        self._observer = Observer()

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Have the id of the workflow of each unreadable payload told to `watcher`, and to no other from now on."""
        self._watchers[:] = [watcher]

    def observe(self, observer: Observer) -> None:
        """Have the bytes of each stored payload told to `observer`, and to no other from now on."""
        self._observer = observer

    def with_context(self, context: SerializationContext) -> Self:
        """Return the codec for payloads of one owner; it shares the cache with this one."""
        codec = copy.copy(self)
        codec._context = context
        return codec

    def loading_at_most(self, size: int) -> Self:
        """Return the codec for one `decode` of payloads that nobody vouches for; it shares the cache with this one.

        It loads so many bytes from the media store and then refuses: a short payload can refer to much data.
        """
        codec = copy.copy(self)
        codec._loads_at_most = size
        return codec

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Store what is large and encrypt, if there are keys. A store's error is raised as it is."""
        sealer = self._sealer(await self._keys.newest()) if self._keys is not None else None
        return list(await asyncio.gather(*(self._encode(payload, sealer) for payload in payloads)))

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Undo what `encode` did. A store that is away raises its own error.

        Raises:
            PayloadUnreadableError: A payload can never be read. In its stead an activity's worker gets a marker that
                `PayloadGuard` knows.
        """
        return list(await asyncio.gather(*(self._decode(payload) for payload in payloads)))

    async def _encode(self, payload: Payload, sealer: Sealer | None) -> Payload:
        if self._pieces is not None and len(payload.data) >= self._threshold:
            depth, root, stored = await self._pieces.store(payload.data, sealer)
            reference = Reference(depth, len(payload.data), root, without_data(payload)).to_payload()
            self._observer.payload_stored(saved=max(0, payload.ByteSize() - reference.ByteSize()), stored=stored)
            payload = reference
        return payload if sealer is None else sealer.seal(payload)

    async def _decode(self, payload: Payload) -> Payload:
        try:
            return await self._read(payload)
        except PayloadUnreadableError as error:
            workflow_id = workflow_of(self._context)
            if workflow_id is not None:
                for watcher in self._watchers:
                    watcher(workflow_id)
            if is_activity_of_workflow(self._context):
                return unreadable_payload(error)
            raise

    async def _read(self, payload: Payload) -> Payload:
        sealer = None
        if payload.metadata.get(ENCODING) == SEALED:
            sealer = await self._sealer_of(payload)
            with self._format_errors():
                payload = sealer.open(payload)
        if payload.metadata.get(ENCODING) != PIECES:
            return payload
        if self._pieces is None:
            raise self._unreadable('its data is in a media store, and this `PayloadStorage` has none.')
        with self._format_errors():
            reference = Reference.of(payload)
        if self._loads_at_most is not None:
            self._loads_at_most -= reference.size
            if self._loads_at_most < 0:
                raise self._unreadable(f'its data has {reference.size} bytes, which is too much for one answer.')
        try:
            data = await self._pieces.load(reference.depth, reference.root, reference.size, sealer)
        except PieceError as error:
            raise self._unreadable(str(error), piece=error.uri) from error
        with self._format_errors():
            return reference.restored(data)

    async def _sealer_of(self, payload: Payload) -> Sealer:
        key_id = payload.metadata.get(KEY_ID, b'').decode(errors='replace')
        if self._keys is None:
            raise self._unreadable(f'it is encrypted with the key {key_id!r}, and this `PayloadStorage` has no keys.')
        key = await self._keys.get(key_id)
        if key is None:
            raise self._unreadable(f'it is encrypted with the key {key_id!r}, which is not among the keys.')
        return self._sealer(key)

    def _sealer(self, key: Key) -> Sealer:
        if key.id not in self._sealers:
            self._sealers[key.id] = Sealer(key)
        return self._sealers[key.id]

    def _unreadable(self, reason: str, *, piece: str | None = None) -> PayloadUnreadableError:
        return PayloadUnreadableError(owner_of(self._context), reason, piece=piece)

    @contextmanager
    def _format_errors(self) -> Generator[None]:
        try:
            yield
        except (FormatError, DecodeError) as error:
            raise self._unreadable(f'{error}.') from error
