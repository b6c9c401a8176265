"""The codec on a real media store, without Temporal."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import WorkflowSerializationContext

from harness_temporal.errors import ConfigurationError
from harness_temporal.media import DiskMediaStore, MediaContext, SqliteMediaStore, known
from harness_temporal.media.context import NO_CONTEXT
from harness_temporal.records import utc_now
from harness_temporal.temporal.payloads import (
    Key,
    KeyRing,
    PayloadStorage,
    PayloadUnreadableError,
    expire_payloads,
)
from tests.temporal.payloads.test_cutting import messages, payloads

KEY = Key('k1', bytes(range(32)))
CONTEXT = WorkflowSerializationContext(namespace='default', workflow_id='my-workflow')


class Counting(DiskMediaStore):
    """Counts what is put and got."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.put_count = self.got_count = self.put_bytes = 0

    async def put(self, data: bytes, *, context: MediaContext = NO_CONTEXT) -> str:
        self.put_count += 1
        self.put_bytes += len(data)
        return await super().put(data, context=context)

    async def get(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bytes:
        self.got_count += 1
        return await super().get(uri, context=context)


@pytest.fixture
def media_store(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def payload(data: bytes) -> Payload:
    return Payload(metadata={'encoding': b'json/plain', 'messageType': b'x'}, data=data)


async def stored_bytes(media_store: DiskMediaStore) -> int:
    return sum([blob.size async for blob in media_store.blobs()])


@pytest.mark.parametrize('keys', [None, KeyRing.of(KEY)], ids=['plain', 'encrypted'])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(datas=st.lists(payloads, min_size=1, max_size=3))
async def test_any_payloads_come_back_in_another_process(
    tmp_path: Path, keys: KeyRing | None, datas: list[bytes]
) -> None:
    media_store = SqliteMediaStore(tmp_path / 'pieces.db')
    given_payloads = [payload(data) for data in datas]
    encoded = await PayloadStorage(media_store, keys=keys, threshold_bytes=100).codec.encode(given_payloads)
    assert all(item.ByteSize() < 400 for item in encoded)
    # Another codec has another cache.
    assert await PayloadStorage(media_store, keys=keys).codec.decode(encoded) == given_payloads
    await media_store.aclose()


@pytest.mark.parametrize('keys', [None, KeyRing.of(KEY)], ids=['plain', 'encrypted'])
async def test_the_store_grows_with_the_run_and_not_with_its_square(
    media_store: Counting, keys: KeyRing | None
) -> None:
    """Each payload is the history so far, as those of model requests are."""
    codec = PayloadStorage(media_store, keys=keys).codec
    sizes: dict[int, int] = {}
    history: list[bytes] = []
    for step in range(1, 801):
        history.append(messages(2, seed=step)[1:-1])
        data = b'[' + b','.join(history) + b']'
        [encoded] = await codec.encode([payload(data)])
        assert encoded.ByteSize() < 250 or len(data) < 1024
        if step in (100, 800):
            sizes[step] = await stored_bytes(media_store)
    assert sizes[800] / sizes[100] < 8 * 1.2
    assert sizes[800] < 3 * len(b','.join(history))
    assert media_store.put_bytes == sizes[800], 'nothing was put twice'


async def test_equal_pieces_are_stored_once_and_put_once_an_hour(
    media_store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = PayloadStorage(media_store).codec
    data = messages(50)
    await codec.encode([payload(data)])
    first = media_store.put_count
    await codec.encode([payload(data)])
    assert media_store.put_count == first
    now = time.monotonic()
    monkeypatch.setattr(known.time, 'monotonic', lambda: now + 3601)
    await codec.encode([payload(data)])
    assert media_store.put_count == 2 * first, 'put again, and so touched'


async def test_what_a_process_wrote_or_read_it_does_not_read_again(media_store: Counting) -> None:
    data = messages(50)
    writer, reader = PayloadStorage(media_store).codec, PayloadStorage(media_store).codec
    encoded = await writer.encode([payload(data)])
    await writer.decode(encoded)
    assert media_store.got_count == 0
    await reader.decode(encoded)
    first = media_store.got_count
    assert first > 10
    await reader.decode(encoded)
    assert media_store.got_count == first


async def test_without_memory_for_pieces_everything_still_works(media_store: Counting) -> None:
    codec = PayloadStorage(media_store, cache_bytes=0).codec
    given_payload = payload(messages(50))
    assert await codec.decode(await codec.encode([given_payload])) == [given_payload]
    assert media_store.got_count > 10


async def test_under_another_key_equal_pieces_have_nothing_in_common(media_store: Counting) -> None:
    data = payload(messages(50))
    for name in ('one', 'two'):
        await PayloadStorage(media_store, keys=KeyRing.of(Key.generate(name))).codec.encode([data])
    digests = [blob.digest async for blob in media_store.blobs()]
    assert len(digests) == media_store.put_count


async def test_equal_small_payloads_look_different() -> None:
    codec = PayloadStorage(None, keys=KeyRing.of(KEY)).codec
    [one, two] = await codec.encode([payload(b'"yes"'), payload(b'"yes"')])
    assert one.data != two.data


async def test_a_payload_of_before_passes(media_store: Counting) -> None:
    codec = PayloadStorage(media_store, keys=KeyRing.of(KEY)).codec
    assert await codec.decode([payload(b'"plain"')]) == [payload(b'"plain"')]


@pytest.mark.parametrize('cut_off', [0, 10, 41])
async def test_a_damaged_reference_is_unreadable(media_store: Counting, cut_off: int) -> None:
    codec = PayloadStorage(media_store).codec
    [reference] = await codec.encode([payload(messages(50))])
    reference.data = reference.data[:cut_off] + b'\xff'
    with pytest.raises(PayloadUnreadableError, match="workflow 'my-workflow'"):
        await codec.with_context(CONTEXT).decode([reference])


async def test_a_changed_ciphertext_is_unreadable() -> None:
    codec = PayloadStorage(None, keys=KeyRing.of(KEY)).codec
    [sealed] = await codec.encode([payload(b'"yes"')])
    sealed.data = sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])
    with pytest.raises(PayloadUnreadableError, match='it was changed'):
        await codec.decode([sealed])


@pytest.mark.parametrize(
    ('size', 'reason'), [(40, 'no list of names'), (2000, 'more than the [0-9]+ bytes')], ids=['short', 'long']
)
async def test_a_root_that_is_no_list_of_names_is_unreadable(media_store: Counting, size: int, reason: str) -> None:
    codec = PayloadStorage(media_store, threshold_bytes=10).codec
    [reference] = await codec.encode([payload(b'x' * size)])
    reference.data = b'\x01' + reference.data[1:]
    with pytest.raises(PayloadUnreadableError, match=reason) as raised:
        await PayloadStorage(media_store).codec.decode([reference])
    assert raised.value.piece is not None
    assert raised.value.piece.startswith('media+sha256://')


async def test_expiry_spares_what_new_payloads_refer_to(media_store: Counting, tmp_path: Path) -> None:
    kept, gone = payload(messages(50, seed=1)), payload(messages(50, seed=2))
    encoded = await PayloadStorage(media_store).codec.encode([kept, gone])
    count = len([blob async for blob in media_store.blobs()])
    month_ago = (utc_now() - timedelta(days=30)).timestamp()
    async for blob in media_store.blobs():
        os.utime(tmp_path / f'{blob.digest}.bin', (month_ago, month_ago))
    # A new payload of another process is made of the same pieces.
    await PayloadStorage(media_store).codec.encode([kept])
    deleted = await expire_payloads(media_store, untouched_for=timedelta(days=7))
    assert 0 < deleted < count
    codec = PayloadStorage(media_store).codec
    assert await codec.decode(encoded[:1]) == [kept]
    with pytest.raises(PayloadUnreadableError, match='is missing from the media store'):
        await codec.decode(encoded[1:])
    with pytest.raises(ConfigurationError, match='at least 2:00:00'):
        await expire_payloads(media_store, untouched_for=timedelta(hours=1))
