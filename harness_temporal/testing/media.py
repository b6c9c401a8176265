"""The conformance suite of media stores: what each of them keeps, refuses and finds."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import ClassVar, Protocol

import pytest
import pytest_asyncio

from harness_temporal.errors import InvalidMediaUriError, MediaNotFoundError, NotStorableError
from harness_temporal.media.context import MediaContext, PublicUrlResolver
from harness_temporal.media.protocol import BaseMediaStore, MediaStore
from harness_temporal.media.uri import media_uri
from harness_temporal.records import utc_now

ABSENT = media_uri(b'never put')
_MEGABYTE = 1 << 20
METADATA = {
    'plain': 'tag',
    'Upper-Case': 'Value',
    'under_score': 'x',
    '': 'empty key',
    'empty': '',
    'dotted.$name': 'a=b; c="d"\r\nx-injected: yes',
    'unicode é 名': 'ünïcode 名 🚀',
    'nul \x00 key': 'nul \x00 value',
    'surrogate \udcff': '\ud83d\ude00',
}


class OpenMediaStore(Protocol):
    """What the `open_media` fixture gives: each call opens one more store on the same place.

    The place is new for each test. The fixture closes what it opened, also what a test closed already.
    """

    async def __call__(self, *, public_url: PublicUrlResolver | None = None) -> BaseMediaStore:
        """Open a store."""
        ...


async def stream(data: bytes, piece: int = 100_000) -> AsyncIterator[bytes]:
    """Give out bytes in pieces."""
    for start in range(0, len(data), piece):
        yield data[start : start + piece]


def pieces(megabytes: int) -> Iterator[bytes]:
    """Yield bytes that no compression makes small."""
    for number in range(megabytes):
        yield hashlib.shake_256(number.to_bytes(4, 'big')).digest(_MEGABYTE)


@pytest.mark.asyncio
class MediaStoreConformance:
    """Derive from it and provide `open_media`."""

    large_megabytes: ClassVar[int] = 48
    """The size of the blob that may never be whole in memory."""

    @pytest_asyncio.fixture
    async def media(self, open_media: OpenMediaStore) -> BaseMediaStore:
        """Open the one store that most tests need."""
        return await open_media()

    # --- bytes ---

    @pytest.mark.parametrize(
        'data',
        [
            b'',
            b'\x00',
            b'text',
            bytes(range(256)) * 1000,
            b'\xff' * (_MEGABYTE - 1),
            b'\x01' * _MEGABYTE,
            b'\x02' * (_MEGABYTE + 1),
            os.urandom(3 * _MEGABYTE + 7),
        ],
        ids=['empty', 'nul', 'text', 'all-bytes', 'below-a-piece', 'a-piece', 'above-a-piece', 'several-pieces'],
    )
    async def test_bytes_come_back(self, media: BaseMediaStore, data: bytes) -> None:
        uri = await media.put(data)
        assert uri == f'media+sha256://{hashlib.sha256(data).hexdigest()}'
        assert await media.get(uri) == data
        assert await media.exists(uri)

    async def test_a_store_is_a_media_store(self, media: BaseMediaStore) -> None:
        assert isinstance(media, MediaStore)

    async def test_the_same_bytes_are_stored_once(self, media: BaseMediaStore) -> None:
        uris = {await media.put(b'same') for _ in range(3)} | {await media.put_stream(stream(b'same'))}
        assert len(uris) == 1
        assert len([blob async for blob in media.blobs()]) == 1

    async def test_a_second_store_on_the_same_place_has_the_blob(self, open_media: OpenMediaStore) -> None:
        first, second = await open_media(), await open_media()
        uri = await first.put(b'shared', context=MediaContext(metadata={'a': 'b'}))
        assert await second.get(uri) == b'shared'
        assert await second.get_metadata(uri) == {'a': 'b'}

    # --- what is not there ---

    async def test_an_absent_blob_is_not_found(self, media: BaseMediaStore) -> None:
        assert not await media.exists(ABSENT)
        with pytest.raises(MediaNotFoundError) as raised:
            await media.get(ABSENT)
        assert raised.value.uri == ABSENT
        with pytest.raises(MediaNotFoundError):
            await media.get_metadata(ABSENT)
        async with media.open(ABSENT) as opened:
            with pytest.raises(MediaNotFoundError):
                await anext(opened)

    @pytest.mark.parametrize(
        'uri',
        [
            '',
            'x',
            ABSENT.upper(),
            ABSENT[:-1],
            f'{ABSENT}0',
            f'{ABSENT}\n',
            ABSENT.replace('sha256', 'sha512'),
            f'media+sha256://../{"0" * 61}',
            f'https://{"0" * 64}',
        ],
    )
    async def test_what_is_no_uri_is_refused(self, media: BaseMediaStore, uri: str) -> None:
        for method in (media.get, media.exists, media.public_url, media.get_metadata):
            with pytest.raises(InvalidMediaUriError):
                await method(uri)

    # --- context ---

    async def test_metadata_of_any_text_comes_back(self, media: BaseMediaStore) -> None:
        uri = await media.put(b'tagged', context=MediaContext(media_type='image/png', metadata=METADATA))
        assert await media.get_metadata(uri) == METADATA

    async def test_a_blob_without_metadata_has_none(self, media: BaseMediaStore) -> None:
        bare, typed = await media.put(b'1'), await media.put(b'2', context=MediaContext(media_type='text/plain'))
        assert await media.get_metadata(bare) == {}
        assert await media.get_metadata(typed) == {}

    async def test_the_first_metadata_stays(self, media: BaseMediaStore) -> None:
        uri = await media.put(b'once', context=MediaContext(metadata={'which': 'first'}))
        await media.put(b'once', context=MediaContext(metadata={'which': 'second'}))
        await media.put(b'once')
        assert await media.get_metadata(uri) == {'which': 'first'}

    async def test_metadata_that_is_no_text_is_refused(self, media: BaseMediaStore) -> None:
        with pytest.raises(NotStorableError):
            await media.put(b'x', context=MediaContext(metadata={'n': 1}))  # pyright: ignore[reportArgumentType]
        assert not await media.exists(media_uri(b'x'))

    # --- URLs ---

    async def test_without_a_resolver_there_is_no_url(self, media: BaseMediaStore) -> None:
        assert await media.public_url(await media.put(b'x')) is None

    async def test_a_resolver_gets_the_uri_and_the_context(self, open_media: OpenMediaStore) -> None:
        def resolve(uri: str, context: MediaContext) -> str | None:
            return f'https://cdn/{uri[-4:]}?{context.media_type}' if context.media_type else None

        async def resolve_later(uri: str, context: MediaContext) -> str | None:
            await asyncio.sleep(0)
            return resolve(uri, context)

        for resolver in (resolve, resolve_later):
            media = await open_media(public_url=resolver)
            uri = await media.put(b'x')
            assert (
                await media.public_url(uri, context=MediaContext(media_type='image/png'))
                == f'https://cdn/{uri[-4:]}?image/png'
            )
            assert await media.public_url(uri) is None

    # --- streams ---

    @pytest.mark.parametrize('size', [0, 1, _MEGABYTE, 2 * _MEGABYTE + 5])
    async def test_a_stream_comes_back_as_a_stream(self, media: BaseMediaStore, size: int) -> None:
        data = os.urandom(size)
        uri = await media.put_stream(stream(data), context=MediaContext(metadata={'a': 'b'}))
        assert uri == media_uri(data)
        async with media.open(uri) as opened:
            read = [piece async for piece in opened]
        assert b''.join(read) == data
        assert all(0 < len(piece) <= 8 * _MEGABYTE for piece in read)
        assert await media.get_metadata(uri) == {'a': 'b'}

    async def test_a_stream_that_fails_leaves_nothing(self, media: BaseMediaStore) -> None:
        async def failing() -> AsyncIterator[bytes]:
            yield b'x' * 100_000
            raise ConnectionError('gone')

        with pytest.raises(ConnectionError):
            await media.put_stream(failing())
        assert [blob async for blob in media.blobs()] == []

    async def test_a_reader_may_stop_early(self, media: BaseMediaStore) -> None:
        uri = await media.put(os.urandom(3 * _MEGABYTE))
        for _ in range(30):
            async with media.open(uri) as opened:
                async for _ in opened:
                    break
        assert len(await media.get(uri)) == 3 * _MEGABYTE

    async def test_no_blob_is_whole_in_memory(self, media: BaseMediaStore) -> None:
        async def large() -> AsyncIterator[bytes]:
            for piece in pieces(self.large_megabytes):
                yield piece

        await media.put(b'warm up what is allocated once')
        tracemalloc.start()
        try:
            uri = await media.put_stream(large())
            digest = hashlib.sha256()
            async with media.open(uri) as opened:
                async for piece in opened:
                    digest.update(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert uri.endswith(digest.hexdigest())
        assert peak < self.large_megabytes * _MEGABYTE * 2 / 3

    # --- many at once ---

    async def test_many_puts_at_once(self, open_media: OpenMediaStore) -> None:
        stores = [await open_media() for _ in range(3)]
        data = [b'%d' % (number % 10) * 1000 for number in range(60)]
        uris = await asyncio.gather(*(stores[index % 3].put(item) for index, item in enumerate(data)))
        read = await asyncio.gather(*(stores[index % 3].get(uri) for index, uri in enumerate(uris)))
        assert read == data
        assert len([blob async for blob in stores[0].blobs()]) == 10

    async def test_a_put_that_is_cancelled_can_be_done_again(self, media: BaseMediaStore) -> None:
        data = os.urandom(2 * _MEGABYTE)
        for turns in range(0, 30, 3):
            task = asyncio.create_task(media.put(data))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if await media.exists(media_uri(data)):
                assert await media.get(media_uri(data)) == data
        assert await media.get(await media.put(data)) == data

    # --- collection ---

    async def test_blobs_are_listed_with_their_size_and_last_put(self, media: BaseMediaStore) -> None:
        before = utc_now() - timedelta(seconds=2)
        uris = {await media.put(bytes(size)): size for size in (0, 1, 1000)}
        found = {blob.digest: blob async for blob in media.blobs()}
        assert {f'media+sha256://{digest}': blob.size for digest, blob in found.items()} == uris
        for blob in found.values():
            assert before <= blob.touched_at <= utc_now() + timedelta(seconds=2)

    async def test_many_blobs_are_all_listed(self, media: BaseMediaStore) -> None:
        uris = set(await asyncio.gather(*(media.put(b'%d' % number) for number in range(1100))))
        assert {f'media+sha256://{blob.digest}' async for blob in media.blobs()} == uris

    async def test_a_blob_that_was_put_lately_is_not_deleted(self, media: BaseMediaStore) -> None:
        uri = await media.put(b'young', context=MediaContext(metadata={'a': 'b'}))
        digest = uri[-64:]
        assert not await media.delete(digest, untouched_since=utc_now() - timedelta(hours=1))
        assert await media.get(uri) == b'young'
        assert await media.delete(digest, untouched_since=utc_now() + timedelta(hours=1))
        assert not await media.exists(uri)
        assert not await media.delete(digest, untouched_since=utc_now() + timedelta(hours=1))
        assert [blob async for blob in media.blobs()] == []

    async def test_a_deleted_blob_can_be_put_again(self, media: BaseMediaStore) -> None:
        data = os.urandom(2 * _MEGABYTE)
        for metadata in ({'a': '1'}, {'a': '2'}, {}):
            uri = await media.put(data, context=MediaContext(metadata=metadata))
            assert await media.get(uri) == data
            assert await media.get_metadata(uri) == metadata
            await media.delete(uri[-64:], untouched_since=utc_now() + timedelta(hours=1))

    async def test_there_are_no_leftovers_of_writers_that_lived(self, media: BaseMediaStore) -> None:
        uri = await media.put(os.urandom(2 * _MEGABYTE))
        assert await media.delete_leftovers(untouched_since=utc_now() + timedelta(hours=1)) == 0
        assert await media.exists(uri)

    # --- closing ---

    async def test_closing_twice_is_fine(self, media: BaseMediaStore) -> None:
        await media.put(b'x')
        await media.aclose()
        await media.aclose()
