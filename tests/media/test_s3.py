"""What is special about `S3MediaStore`: on the wire against a stub, and in a bucket against a server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from botocore.response import StreamingBody

from harness_temporal.errors import (
    ConfigurationError,
    HarnessError,
    MediaCorruptionError,
    MediaNotFoundError,
    NotStorableError,
    StoreAccessError,
    StoreCorruptionError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)
from harness_temporal.media import MediaContext, make_static_public_url, media_uri
from harness_temporal.media.blob import Blob
from harness_temporal.media.s3 import S3MediaStore, store, upload
from harness_temporal.media.s3.client import ATTEMPTS, CONNECTIONS
from harness_temporal.records import utc_now
from harness_temporal.temporal.dev_server import free_port
from harness_temporal.testing.media import METADATA, pieces
from tests.media.s3_stub import Reply, Request, Stub, present, refusal, stub_server, until
from tests.s3_server import Bucket, S3Server
from tests.unit.test_imports import run_without

MEGABYTE = 1 << 20
SMALL_PART = 5 * MEGABYTE
DATA = b'some bytes'
URI = media_uri(DATA)
KEY = f'{URI[-64:]}.bin'
LATER = timedelta(hours=1)

COPIED = Reply(200, b'<CopyObjectResult><ETag>"e"</ETag></CopyObjectResult>')

OpenMedia = Callable[..., S3MediaStore]


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub


@pytest.fixture
async def media(stub: Stub) -> AsyncIterator[S3MediaStore]:
    async with aclosing(stub.store()) as media:
        yield media


@pytest.fixture
async def in_bucket(bucket: Bucket) -> AsyncIterator[OpenMedia]:
    """Yield what opens stores on one bucket of a real server."""
    opened: list[S3MediaStore] = []

    def open_media(**settings: Any) -> S3MediaStore:
        opened.append(bucket.store(**settings))
        return opened[-1]

    yield open_media
    for media in opened:
        await media.aclose()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, 'PART_SIZE', SMALL_PART)


def on(operation: str, *replies: Reply) -> Callable[[Request], Reply | None]:
    """Give these replies to the requests of one kind, the last one for ever."""
    left = list(replies)

    def answer(request: Request) -> Reply | None:
        if request.operation != operation:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


def one_key(uri: str, context: MediaContext) -> str:
    return 'one.bin'


# --- checksums (boto3 sends them by default since 1.36, and R2 and others refuse them) ---


def checksum_headers(request: Request) -> dict[str, str]:
    return {
        name: value
        for name, value in request.headers.items()
        if name.startswith(('x-amz-checksum-', 'x-amz-sdk-checksum-algorithm', 'x-amz-trailer', 'content-md5'))
        or 'aws-chunked' in value
        or 'STREAMING' in value
    }


async def every_kind_of_request(stub: Stub, media: S3MediaStore) -> None:
    """Make the store send each request that it knows."""
    large = b''.join(pieces(SMALL_PART // MEGABYTE * 2))
    await media.put(DATA)
    await media.put(large[: 2 * MEGABYTE])
    await media.put(large)
    stub.answer = on('HEAD', present(len(DATA), age=10))
    await media.put(DATA)
    await media.exists(URI)
    stub.answer = on('GET', Reply(200, DATA))
    assert await media.get(URI) == DATA
    stub.answer = on('GET', Reply(200, b'<ListBucketResult/>'))
    assert [blob async for blob in media.blobs()] == []
    await media.delete(URI[-64:], untouched_since=utc_now())
    await media.delete_leftovers(untouched_since=utc_now())


@pytest.mark.usefixtures('small_parts')
async def test_no_request_has_a_checksum_unless_asked(stub: Stub, media: S3MediaStore) -> None:
    await every_kind_of_request(stub, media)
    assert {'PUT', 'HEAD', 'GET', 'POST uploads', 'PUT partNumber uploadId', 'POST uploadId'} <= {*stub.operations()}
    assert any('x-amz-copy-source' in request.headers for request in stub.requests)
    assert [checksum_headers(request) for request in stub.requests if checksum_headers(request)] == []
    # In their place the signature covers the body.
    for request in stub.requests:
        assert request.headers['x-amz-content-sha256'] == hashlib.sha256(request.body).hexdigest()


@pytest.mark.usefixtures('small_parts')
async def test_checksums_are_sent_when_asked(stub: Stub) -> None:
    async with aclosing(stub.store(checksums=True)) as media:
        await every_kind_of_request(stub, media)
    sent = {request.operation for request in stub.requests if checksum_headers(request)}
    assert sent >= {'PUT', 'GET', 'POST uploads', 'PUT partNumber uploadId'}


@pytest.mark.s3
@pytest.mark.usefixtures('small_parts')
async def test_a_server_that_knows_checksums_takes_them(in_bucket: OpenMedia) -> None:
    media, data = in_bucket(checksums=True), os.urandom(SMALL_PART + 1)
    assert await media.get(await media.put(DATA)) == DATA
    assert await media.get(await media.put(data)) == data


async def test_the_bucket_is_in_the_path(stub: Stub, media: S3MediaStore) -> None:
    await media.put(DATA)
    assert {request.path for request in stub.requests} == {f'/bucket/{KEY}'}
    assert {request.headers['host'] for request in stub.requests} == {stub.endpoint.removeprefix('http://')}


# --- missing, refused, and no bucket ---


async def test_missing_is_told_from_refused(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('GET', refusal(404, 'NoSuchKey'))
    assert not await media.exists(URI)
    for method in (media.get, media.get_metadata):
        with pytest.raises(MediaNotFoundError):
            await method(URI)
    stub.answer = lambda request: Reply(403) if request.method == 'HEAD' else refusal(403, 'AccessDenied')
    for method in (media.exists, media.get, media.get_metadata):
        with pytest.raises(StoreAccessError, match='ListBucket'):
            await method(URI)


@pytest.mark.parametrize('status', [400, 401, 403, 405])
async def test_who_may_not_look_may_still_put(stub: Stub, media: S3MediaStore, status: int) -> None:
    stub.answer = on('HEAD', Reply(status))
    assert await media.put(DATA, context=MediaContext(media_type='text/plain')) == URI
    # At a 400 boto3 asks for the bucket, to see whether it is in another region.
    assert [operation for operation in stub.operations() if operation != 'HEAD bucket'] == ['HEAD', 'PUT']
    assert stub.requests[-1].body == DATA


async def test_who_may_not_put_is_told_so(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = lambda request: Reply(403) if request.method == 'HEAD' else refusal(403, 'AccessDenied')
    with pytest.raises(StoreAccessError, match='PutObject'):
        await media.put(DATA)


@pytest.mark.s3
async def test_a_missing_bucket_is_an_error_of_its_own(s3: S3Server) -> None:
    absent = Bucket(s3, 'harness-no-such-bucket', None)

    async def list_blobs(uri: str) -> object:
        return [blob async for blob in media.blobs()]

    async with aclosing(absent.store()) as media:
        for method in (
            media.exists,
            media.get,
            media.get_metadata,
            lambda uri: media.put(DATA),
            list_blobs,
            lambda uri: media.delete(uri[-64:], untouched_since=utc_now()),
            lambda uri: media.delete_leftovers(untouched_since=utc_now()),
        ):
            with pytest.raises(ConfigurationError, match='harness-no-such-bucket'):
                await method(URI)


async def test_a_bucket_that_may_not_be_looked_at_is_no_missing_one(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = lambda request: Reply(403) if request.path == '/bucket' else None
    assert not await media.exists(URI)
    assert [request.path for request in stub.requests] == [f'/bucket/{KEY}', '/bucket']


async def test_a_bucket_is_looked_for_once(stub: Stub, media: S3MediaStore) -> None:
    for _ in range(3):
        assert not await media.exists(URI)
    assert [request.path for request in stub.requests].count('/bucket') == 1


@pytest.mark.parametrize(
    ('status', 'code', 'expected'),
    [
        (301, 'PermanentRedirect', ConfigurationError),
        (400, 'AuthorizationHeaderMalformed', ConfigurationError),
        (404, 'NoSuchBucket', ConfigurationError),
        (400, 'ExpiredToken', StoreAccessError),
        (401, 'Unauthorized', StoreAccessError),
        (403, 'InvalidAccessKeyId', StoreAccessError),
        (403, 'SignatureDoesNotMatch', StoreAccessError),
        (403, 'InvalidObjectState', StoreError),
        (400, 'InvalidRequest', StoreError),
        (501, 'NotImplemented', StoreError),
        (400, 'MetadataTooLarge', NotStorableError),
        (400, 'RequestTimeout', StoreUnavailableError),
        (409, 'ConditionalRequestConflict', StoreUnavailableError),
        (429, 'TooManyRequests', StoreUnavailableError),
        (500, 'InternalError', StoreUnavailableError),
        (503, 'SlowDown', StoreUnavailableError),
    ],
)
async def test_what_answers_mean(
    stub: Stub, media: S3MediaStore, status: int, code: str, expected: type[HarnessError]
) -> None:
    stub.answer = on('PUT', refusal(status, code))
    with pytest.raises(expected) as raised:
        await media.put(DATA)
    assert type(raised.value) is expected


# --- a server or a network that fails ---


async def test_a_slow_server_is_given_up(stub: Stub) -> None:
    def stall(request: Request) -> None:
        stub.released.wait(60)

    stub.answer = stall
    async with aclosing(stub.store(timeout=0.2)) as media:
        for method in (media.exists, media.get, lambda uri: media.put(DATA)):
            stub.requests.clear()
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                await method(URI)
            assert time.monotonic() - began < 20
            assert len(stub.requests) == ATTEMPTS


async def test_a_server_that_stops_in_the_middle_is_given_up(stub: Stub) -> None:
    class Slow(bytes):
        def __getitem__(self, index: Any) -> Any:
            stub.released.wait(60)
            return super().__getitem__(index)

    stub.answer = on('GET', Reply(200, Slow(DATA)))
    async with aclosing(stub.store(timeout=0.2)) as media:
        with pytest.raises(StoreUnavailableError):
            await media.get(URI)


async def test_nobody_listens() -> None:
    async with aclosing(
        S3MediaStore(
            'bucket', endpoint=f'http://127.0.0.1:{free_port()}', access_key_id='key', secret_access_key='secret'
        )
    ) as media:
        for method in (media.exists, media.get, lambda uri: media.put(DATA)):
            with pytest.raises(StoreUnavailableError):
                await method(URI)


async def test_a_busy_server_is_asked_again(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('PUT', refusal(503, 'SlowDown'), Reply(200))
    await media.put(DATA)
    assert stub.operations() == ['HEAD', 'PUT', 'PUT']
    assert stub.requests[-1].body == DATA


async def test_a_large_body_is_sent_again_from_its_start(stub: Stub, media: S3MediaStore) -> None:
    data = os.urandom(2 * MEGABYTE)
    stub.answer = on('PUT', refusal(500, 'InternalError'), Reply(200))
    await media.put(data)
    assert [request.body == data for request in stub.requests] == [False, True, True]


async def test_a_connection_that_is_cut_in_the_middle_of_a_blob(stub: Stub, media: S3MediaStore) -> None:
    data = os.urandom(3 * MEGABYTE)
    stub.answer = on('GET', Reply(200, data, missing=1000))
    with pytest.raises(StoreUnavailableError):
        await media.get(media_uri(data))


async def test_wrong_bytes_are_found_out(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('GET', Reply(200, b'other bytes'))
    with pytest.raises(MediaCorruptionError):
        await media.get(URI)


# --- putting what is there ---


@pytest.mark.parametrize('age', [0, 4])
async def test_a_young_blob_is_left_alone(stub: Stub, media: S3MediaStore, age: int) -> None:
    stub.answer = on('HEAD', present(len(DATA), age=age))
    await media.put(DATA)
    assert stub.operations() == ['HEAD']


async def test_an_old_blob_is_touched_as_it_is(stub: Stub, media: S3MediaStore) -> None:
    found = present(len(DATA), age=6, tag='first')
    found = Reply(200, b'', {**found.headers, 'Content-Type': 'image/png', 'Cache-Control': 'immutable'})
    stub.answer = lambda request: found if request.method == 'HEAD' else COPIED
    await media.put(DATA, context=MediaContext(media_type='text/plain', metadata={'tag': 'second'}))
    assert stub.operations() == ['HEAD', 'PUT']
    headers = stub.requests[1].headers
    assert headers['x-amz-copy-source'] == f'bucket/{KEY}'
    assert headers['x-amz-metadata-directive'] == 'REPLACE'
    assert (headers['x-amz-meta-tag'], headers['content-type'], headers['cache-control']) == (
        'first',
        'image/png',
        'immutable',
    )


@pytest.mark.parametrize(
    'reply',
    [
        refusal(403, 'AccessDenied'),
        refusal(404, 'NoSuchKey'),
        refusal(403, 'InvalidObjectState'),
        Reply(200, COPIED.body, missing=len(COPIED.body)),
    ],
    ids=['refused', 'gone', 'archived', 'cut-off'],
)
async def test_an_old_blob_that_cannot_be_copied_is_uploaded_again(
    stub: Stub, media: S3MediaStore, reply: Reply
) -> None:
    def answer(request: Request) -> Reply | None:
        if request.method == 'HEAD':
            return present(len(DATA), age=6, tag='first')
        return reply if 'x-amz-copy-source' in request.headers else None

    stub.answer = answer
    await media.put(DATA, context=MediaContext(metadata={'tag': 'second'}))
    assert stub.requests[-1].body == DATA
    assert stub.requests[-1].headers['x-amz-meta-tag'] == 'first'


async def test_a_blob_too_large_to_copy_is_uploaded_again(
    stub: Stub, media: S3MediaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, '_LARGEST_COPY', len(DATA) - 1)
    stub.answer = on('HEAD', present(len(DATA), age=6))
    await media.put(DATA)
    assert stub.requests[-1].body == DATA


async def test_a_blob_of_the_wrong_size_is_replaced(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('HEAD', present(len(DATA) - 1))
    await media.put(DATA)
    assert stub.requests[-1].body == DATA


@pytest.mark.s3
async def test_a_touch_makes_a_blob_young_and_changes_nothing_else(
    in_bucket: OpenMedia, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_modified() -> Any:
        return bucket.client.list_objects_v2(Bucket=bucket.name)['Contents'][0]['LastModified']

    media = in_bucket()
    await media.put(DATA, context=MediaContext(media_type='image/png', metadata=METADATA))
    before = last_modified()
    monkeypatch.setattr(store, 'TOUCH_INTERVAL', timedelta(seconds=-1))

    async def touch_until_later() -> None:
        # Servers keep whole seconds.
        while last_modified() <= before:
            await media.put(DATA, context=MediaContext(media_type='text/plain', metadata={'a': 'b'}))

    await asyncio.wait_for(touch_until_later(), 20)
    assert await media.get_metadata(URI) == METADATA
    assert bucket.client.head_object(Bucket=bucket.name, Key=KEY)['ContentType'] == 'image/png'
    assert await media.get(URI) == DATA


# --- large blobs ---


@pytest.mark.s3
@pytest.mark.usefixtures('small_parts')
@pytest.mark.parametrize(
    ('size', 'parts'),
    [
        (SMALL_PART - 1, 0),
        (SMALL_PART, 0),
        (SMALL_PART + 1, 2),
        (2 * SMALL_PART, 2),
        (2 * SMALL_PART + 1, 3),
    ],
)
async def test_blobs_around_the_size_of_a_part(in_bucket: OpenMedia, bucket: Bucket, size: int, parts: int) -> None:
    media, data = in_bucket(), os.urandom(size)
    context = MediaContext(media_type='video/mp4', metadata={'tag': 'x', 'Ünï': 'code'})
    uri = await media.put(data, context=context)
    head = bucket.client.head_object(Bucket=bucket.name, Key=f'{uri[-64:]}.bin')
    assert head['ContentType'] == 'video/mp4'
    assert head['ETag'].strip('"').partition('-')[2] == (str(parts) if parts else '')
    assert await media.get(uri) == data
    assert await media.get_metadata(uri) == context.metadata
    assert bucket.uploads() == []


@pytest.mark.s3
@pytest.mark.usefixtures('small_parts')
async def test_there_are_never_more_parts_than_s3_takes(
    in_bucket: OpenMedia, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, '_MOST_PARTS', 2)
    media, data = in_bucket(), os.urandom(3 * SMALL_PART + 1)
    uri = await media.put(data)
    assert bucket.client.head_object(Bucket=bucket.name, Key=f'{uri[-64:]}.bin')['ETag'].strip('"').endswith('-2')
    assert await media.get(uri) == data


@pytest.mark.usefixtures('small_parts')
async def test_an_upload_that_is_cancelled_is_aborted(stub: Stub, media: S3MediaStore) -> None:
    def answer(request: Request) -> None:
        if request.query.get('partNumber') == '2':
            stub.released.wait(60)

    stub.answer = answer
    task = asyncio.create_task(media.put(b''.join(pieces(15))))
    await until(lambda: stub.operations().count('PUT partNumber uploadId') == 2)
    task.cancel()
    await asyncio.sleep(0)
    stub.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    # It was aborted by the time its caller goes on.
    assert stub.operations() == [
        'HEAD',
        'POST uploads',
        'PUT partNumber uploadId',
        'PUT partNumber uploadId',
        'DELETE uploadId',
    ]


async def test_an_upload_that_is_cancelled_before_its_body_does_not_send_it(stub: Stub, media: S3MediaStore) -> None:
    def answer(request: Request) -> Reply | None:
        if request.method != 'HEAD':
            return None
        stub.released.wait(60)
        return Reply(404)

    stub.answer = answer
    task = asyncio.create_task(media.put(b''.join(pieces(8))))
    await until(lambda: stub.operations() == ['HEAD'])
    task.cancel()
    await asyncio.sleep(0)
    stub.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stub.operations() == ['HEAD']


async def test_an_upload_that_is_cancelled_stops_in_the_middle_of_its_body(stub: Stub, media: S3MediaStore) -> None:
    loop, was_cancelled = asyncio.get_running_loop(), threading.Event()

    async def cancel() -> None:
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        was_cancelled.set()

    class File(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            # The signature reads larger pieces first.
            if self.tell() >= 4 * MEGABYTE and size is not None and size < MEGABYTE and not was_cancelled.is_set():
                asyncio.run_coroutine_threadsafe(cancel(), loop).result(30)
            return super().read(size)

    data = b''.join(pieces(8))
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data), File(data))
    task = asyncio.create_task(media._write(blob, MediaContext()))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert was_cancelled.is_set()
    await until(lambda: stub.broken_bodies == 1)
    # It is not sent again: nobody waits for it.
    assert stub.operations() == ['HEAD']


@pytest.mark.usefixtures('small_parts')
async def test_an_upload_that_fails_is_aborted(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('PUT partNumber uploadId', Reply(200, headers={'ETag': '"e"'}), refusal(403, 'AccessDenied'))
    with pytest.raises(StoreAccessError):
        await media.put(b''.join(pieces(11)))
    assert stub.operations()[-1] == 'DELETE uploadId'
    assert 'POST uploadId' not in stub.operations()


@pytest.mark.usefixtures('small_parts')
async def test_an_upload_that_cannot_be_aborted_raises_the_first_error(stub: Stub, media: S3MediaStore) -> None:
    def answer(request: Request) -> Reply | None:
        if request.operation == 'POST uploadId':
            return refusal(403, 'AccessDenied')
        return refusal(503, 'SlowDown') if request.method == 'DELETE' else None

    stub.answer = answer
    with pytest.raises(StoreAccessError):
        await media.put(b''.join(pieces(6)))


@pytest.mark.usefixtures('small_parts')
@pytest.mark.parametrize('is_there', [True, False], ids=['completed', 'gone'])
@pytest.mark.parametrize(
    'reply',
    [refusal(404, 'NoSuchUpload'), Reply(200, b'x' * 100, missing=100), Reply(200, b'x' * 100, missing=50)],
    ids=['an-attempt-before', 'no-answer', 'half-an-answer'],
)
async def test_an_upload_is_looked_for_when_its_end_is_not_sure(
    stub: Stub, media: S3MediaStore, reply: Reply, is_there: bool
) -> None:
    """boto3 takes a 200 without a body for success, and S3 says 200 before it puts the parts together."""

    def answer(request: Request) -> Reply | None:
        if request.operation == 'POST uploadId':
            return reply if stub.operations().count('POST uploadId') == 1 else refusal(404, 'NoSuchUpload')
        was_ended = 'POST uploadId' in stub.operations()
        return present(6 * MEGABYTE) if request.method == 'HEAD' and was_ended and is_there else None

    stub.answer = answer
    if is_there:
        await media.put(b''.join(pieces(6)))
        assert stub.operations()[-1] == 'HEAD'
    else:
        with pytest.raises(StoreUnavailableError):
            await media.put(b''.join(pieces(6)))
        assert stub.operations()[-1] == 'DELETE uploadId'


@pytest.mark.usefixtures('small_parts')
@pytest.mark.parametrize('missing', [100, 50])
async def test_the_answer_to_the_start_of_an_upload_is_cut_off(stub: Stub, media: S3MediaStore, missing: int) -> None:
    stub.answer = on('POST uploads', Reply(200, b'<a>' * 50, missing=missing))
    with pytest.raises(StoreUnavailableError):
        await media.put(b''.join(pieces(6)))


async def test_an_answer_that_nobody_understands(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('GET', Reply(200, b'<html>welcome'))
    with pytest.raises(StoreUnavailableError):
        assert [blob async for blob in media.blobs()]


@pytest.mark.s3
async def test_leftovers_are_uploads_of_blobs_under_the_prefix(in_bucket: OpenMedia, bucket: Bucket) -> None:
    keys = [f'media/{KEY}', f'media/{"0" * 64}.bin', 'media/not-a-blob', f'other/{KEY}', KEY]
    for key in keys:
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)
    media = in_bucket(key_prefix='media/')
    assert await media.delete_leftovers(untouched_since=utc_now() + LATER) == 2
    assert sorted(bucket.uploads()) == sorted(keys[2:])


@pytest.mark.parametrize(('seconds', 'count'), [(0, 0), (1, 1)])
async def test_leftovers_are_old(stub: Stub, media: S3MediaStore, seconds: int, count: int) -> None:
    started = datetime(2020, 1, 5, 10, tzinfo=UTC)
    item = f'<Upload><Key>{KEY}</Key><UploadId>u</UploadId><Initiated>{started.isoformat()}</Initiated></Upload>'
    stub.answer = on(
        'GET uploads', Reply(200, f'<ListMultipartUploadsResult>{item}</ListMultipartUploadsResult>'.encode())
    )
    assert await media.delete_leftovers(untouched_since=started + timedelta(seconds=seconds)) == count
    assert stub.operations() == ['GET uploads', *['DELETE uploadId'] * count]


async def test_leftovers_are_listed_by_pages_and_may_be_gone(stub: Stub, media: S3MediaStore) -> None:
    def page(number: int, more: str) -> Reply:
        uploads = ''.join(
            f'<Upload><Key>{KEY}</Key><UploadId>{number}-{index}</UploadId>'
            '<Initiated>2020-01-05T10:00:00.000Z</Initiated></Upload>'
            for index in range(2)
        )
        return Reply(200, f'<ListMultipartUploadsResult>{more}{uploads}</ListMultipartUploadsResult>'.encode())

    more = (
        f'<IsTruncated>true</IsTruncated><NextKeyMarker>{KEY}</NextKeyMarker>'
        '<NextUploadIdMarker>0-1</NextUploadIdMarker>'
    )

    def answer(request: Request) -> Reply | None:
        if request.method == 'GET':
            return page(1, '') if request.query.get('upload-id-marker') == '0-1' else page(0, more)
        return refusal(404, 'NoSuchUpload') if request.query['uploadId'] == '1-0' else None

    stub.answer = answer
    assert await media.delete_leftovers(untouched_since=utc_now()) == 3


# --- keys ---


@pytest.mark.parametrize('key', ['', '/x', '../x', 'a/../x', 'a//x', 'a/', './x', 'a\\x', 'a\x00', 'a\nx', 'x' * 2000])
@pytest.mark.parametrize('prefix', ['', 'media', 'media/'])
async def test_a_key_strategy_does_not_leave_the_prefix(stub: Stub, prefix: str, key: str) -> None:
    async with aclosing(stub.store(key_prefix=prefix, key_strategy=lambda uri, context: key)) as media:
        for method in (media.exists, media.get, media.get_metadata, lambda uri: media.put(DATA)):
            with pytest.raises(ConfigurationError):
                await method(URI)
    assert stub.requests == []


async def test_a_key_may_be_too_long_with_its_prefix(stub: Stub) -> None:
    async with aclosing(stub.store(key_prefix='x' * 120)) as media:
        with pytest.raises(ConfigurationError, match='too long'):
            await media.put(DATA)


@pytest.mark.parametrize('prefix', ['/', '/media/', '../', 'a/../', 'a//', 'a\x00/'])
async def test_a_prefix_is_the_beginning_of_a_relative_path(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match='key_prefix'):
        S3MediaStore('bucket', key_prefix=prefix)


@pytest.mark.s3
async def test_a_store_sees_only_blobs_under_its_prefix(in_bucket: OpenMedia, bucket: Bucket) -> None:
    mine, other, whole = in_bucket(key_prefix='a/'), in_bucket(key_prefix='b/'), in_bucket()
    await mine.put(DATA)
    await other.put(DATA)
    bucket.client.put_object(Bucket=bucket.name, Key='a/readme.txt', Body=b'not a blob')
    assert sorted(bucket.keys()) == [f'a/{KEY}', 'a/readme.txt', f'b/{KEY}']
    assert [blob.digest async for blob in mine.blobs()] == [URI[-64:]]
    assert not await whole.exists(URI)
    assert await mine.delete(URI[-64:], untouched_since=utc_now() + LATER)
    assert sorted(bucket.keys()) == ['a/readme.txt', f'b/{KEY}']
    assert await other.get(URI) == DATA


@pytest.mark.s3
@pytest.mark.parametrize('layout', ['images/{digest}.{kind}', '{kind}/{digest}', '{digest}/{kind}'])
async def test_blobs_whose_key_depends_on_the_context_are_collected(
    in_bucket: OpenMedia, bucket: Bucket, layout: str
) -> None:
    def by_media_type(uri: str, context: MediaContext) -> str:
        kind = {'image/png': 'png'}.get(context.media_type or '', 'bin')
        return layout.format(digest=uri.removeprefix('media+sha256://'), kind=kind)

    media, png = in_bucket(key_strategy=by_media_type), MediaContext(media_type='image/png')
    uri = await media.put(DATA, context=png)
    assert await media.get(uri, context=png) == DATA
    assert not await media.exists(uri)
    (blob,) = [blob async for blob in media.blobs()]
    assert not await media.delete(blob.digest, untouched_since=utc_now() - LATER)
    assert await media.delete(blob.digest, untouched_since=utc_now() + LATER)
    assert bucket.keys() == []


@pytest.mark.s3
@pytest.mark.parametrize('other', [b'other byte', b'more than those bytes'], ids=['same-size', 'other-size'])
async def test_one_key_for_two_blobs_loses_none(in_bucket: OpenMedia, other: bytes) -> None:
    media = in_bucket(key_strategy=one_key)
    for _ in range(2):
        await media.put(DATA, context=MediaContext(metadata={'a': 'b', 'Ü': 'x'}))
    with pytest.raises(ConfigurationError, match='two different blobs'):
        await media.put(other)
    assert await media.get(URI) == DATA
    assert await media.get_metadata(URI) == {'a': 'b', 'Ü': 'x'}


@pytest.mark.s3
async def test_what_another_program_put_under_the_key_is_compared(in_bucket: OpenMedia, bucket: Bucket) -> None:
    media = in_bucket(key_strategy=one_key)
    bucket.client.put_object(Bucket=bucket.name, Key='one.bin', Body=DATA)
    assert await media.put(DATA) == URI
    with pytest.raises(ConfigurationError, match='two different blobs'):
        await media.put(b'other byte')


@pytest.mark.s3
async def test_of_two_blobs_that_are_put_under_one_key_at_once_one_is_refused(in_bucket: OpenMedia) -> None:
    media = in_bucket(key_strategy=one_key)
    blobs = [b'%d' % number for number in range(8)]
    results = await asyncio.gather(*map(media.put, blobs), return_exceptions=True)
    kept = [blob for blob, result in zip(blobs, results, strict=True) if isinstance(result, str)]
    assert len(kept) == 1
    assert await media.get(media_uri(kept[0])) == kept[0]
    assert all(isinstance(result, str | ConfigurationError) for result in results)


async def test_a_writer_that_was_slower_looks_again(stub: Stub) -> None:
    looks: list[Reply] = []

    def answer(request: Request) -> Reply | None:
        if request.method == 'HEAD':
            return looks.pop(0)
        assert request.headers['if-none-match'] == '*'
        return refusal(412, 'PreconditionFailed')

    stub.answer = answer
    async with aclosing(stub.store(key_strategy=one_key)) as media:
        looks[:] = [Reply(404), present(len(DATA) + 1)]
        with pytest.raises(ConfigurationError, match='two different blobs'):
            await media.put(DATA)
        looks[:] = [Reply(404), Reply(404)]
        with pytest.raises(StoreUnavailableError):
            await media.put(DATA)


async def test_who_may_not_look_does_not_put_under_a_key_that_names_no_blob(stub: Stub) -> None:
    stub.answer = on('HEAD', Reply(403))
    async with aclosing(stub.store(key_strategy=one_key)) as media:
        with pytest.raises(StoreAccessError):
            await media.put(DATA)
    assert stub.operations() == ['HEAD']


# --- metadata and content type ---


@pytest.mark.s3
async def test_what_headers_can_carry_is_there_for_everybody(in_bucket: OpenMedia, bucket: Bucket) -> None:
    metadata = {'user-id': '42', 'Upper': 'x', 'note': 'a b', 'spaces': 'a  b', 'edge': ' a', 'empty': ''}
    media = in_bucket()
    await media.put(DATA, context=MediaContext(media_type='image/png; q="1"', metadata=metadata))
    head = bucket.client.head_object(Bucket=bucket.name, Key=KEY)
    assert head['ContentType'] == 'image/png; q="1"'
    assert head['Metadata'].keys() == {'user-id', 'note', 'harness-temporal'}
    assert (head['Metadata']['user-id'], head['Metadata']['note']) == ('42', 'a b')
    assert await media.get_metadata(URI) == metadata


@pytest.mark.s3
async def test_metadata_that_headers_would_change(in_bucket: OpenMedia) -> None:
    metadata = {
        'harness-temporal': 'ours',
        'a': 'lower',
        'A': 'upper',
        'encoded': '=?UTF-8?B?eA==?=',
        'under_score': 'dropped by proxies',
        'tab': 'a\tb',
        '-': 'dash',
    }
    media = in_bucket()
    await media.put(DATA, context=MediaContext(metadata=metadata))
    assert await media.get_metadata(URI) == metadata


async def test_servers_that_write_names_with_capitals(stub: Stub, media: S3MediaStore) -> None:
    await media.put(DATA, context=MediaContext(metadata={'plain': 'x', 'Not-Plain': 'y'}))
    ours = stub.requests[-1].headers['x-amz-meta-harness-temporal']
    stub.answer = on('HEAD', present(len(DATA), **{'Plain': 'x', 'Harness-Temporal': ours}))
    assert await media.get_metadata(URI) == {'plain': 'x', 'Not-Plain': 'y'}


@pytest.mark.parametrize(
    ('header', 'expected'),
    [
        ('%%%', MediaCorruptionError),
        ('e30=', MediaCorruptionError),
        ('eyJ2ZXJzaW9uIjogMSwgIm1ldGFkYXRhIjogM30=', MediaCorruptionError),
        ('eyJ2ZXJzaW9uIjogMiwgIm1ldGFkYXRhIjogInt9In0=', StoreSchemaError),
    ],
)
async def test_a_header_that_was_not_written_by_this_release(
    stub: Stub, media: S3MediaStore, header: str, expected: type[StoreError]
) -> None:
    stub.answer = on('HEAD', present(len(DATA), **{'harness-temporal': header}))
    with pytest.raises(expected):
        await media.get_metadata(URI)


@pytest.mark.parametrize(
    'context',
    [
        MediaContext(metadata={'large': 'x' * 2048}),
        MediaContext(metadata={'Large': '名' * 600}),
        MediaContext(metadata={f'k{number}': 'x' for number in range(200)}),
        MediaContext(media_type='text/plain\r\nx-injected: yes'),
        MediaContext(media_type='text/plain\x00'),
        MediaContext(media_type='text/é'),
        MediaContext(media_type=' '),
    ],
)
async def test_what_no_header_carries_is_refused_before_anything_is_sent(
    stub: Stub, media: S3MediaStore, context: MediaContext
) -> None:
    with pytest.raises(NotStorableError):
        await media.put(DATA, context=context)
    assert stub.requests == []


@pytest.mark.s3
async def test_as_much_metadata_as_is_taken(in_bucket: OpenMedia) -> None:
    metadata = {'large': 'x' * (2048 - len('x-amz-meta-large'))}
    media = in_bucket()
    await media.put(DATA, context=MediaContext(metadata=metadata))
    assert await media.get_metadata(URI) == metadata


# --- URLs (the samples of the step-persistence seed) ---


async def test_a_static_public_url(stub: Stub) -> None:
    media = stub.store(
        key_prefix='media/', public_url=make_static_public_url('https://pub-abc.r2.dev', key_prefix='media/')
    )
    async with aclosing(media):
        assert await media.public_url(await media.put(DATA)) == f'https://pub-abc.r2.dev/media/{KEY}'
    assert stub.requests[-1].path == f'/bucket/media/{KEY}'


@pytest.mark.s3
async def test_a_presigned_url(bucket: Bucket) -> None:
    async def presign(uri: str, ctx: MediaContext) -> str:
        key = 'media/' + uri.removeprefix('media+sha256://') + '.bin'
        parameters = {'Bucket': bucket.name, 'Key': key, 'ResponseContentType': ctx.media_type}
        return await asyncio.to_thread(
            bucket.client.generate_presigned_url, 'get_object', Params=parameters, ExpiresIn=3600
        )

    async with aclosing(bucket.store(key_prefix='media/', public_url=presign)) as media:
        url = await media.public_url(await media.put(DATA), context=MediaContext(media_type='text/plain'))
    assert url is not None
    assert f'/media/{KEY}?' in url
    assert 'Signature=' in url


# --- the client ---


async def test_many_first_uses_make_one_client_outside_of_the_event_loop(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boto3.session import Session

    made_in: list[threading.Thread] = []
    make = Session.client

    def counted(*args: Any, **parameters: Any) -> Any:
        made_in.append(threading.current_thread())
        return make(*args, **parameters)

    monkeypatch.setattr(Session, 'client', counted)
    async with aclosing(stub.store()) as media:
        assert made_in == []
        await asyncio.gather(*(media.put(b'%d' % number) for number in range(50)))
    assert len(made_in) == 1
    assert made_in[0] is not threading.main_thread()


async def test_requests_at_once_are_bounded(stub: Stub, media: S3MediaStore) -> None:
    def stall(request: Request) -> None:
        stub.released.wait(60)

    stub.answer = stall
    tasks = [asyncio.create_task(media.put(b'%d' % number)) for number in range(3 * CONNECTIONS)]
    await until(lambda: len(stub.requests) >= CONNECTIONS)
    # Whoever still waits for its turn is gone at once, and leaves nothing behind.
    for task in tasks[-CONNECTIONS:]:
        task.cancel()
    await asyncio.gather(*tasks[-CONNECTIONS:], return_exceptions=True)
    assert len(stub.requests) == stub.connections == CONNECTIONS
    stub.released.set()
    await asyncio.gather(*tasks[:-CONNECTIONS])
    assert stub.operations().count('PUT') == 2 * CONNECTIONS
    assert stub.connections == CONNECTIONS


async def test_the_event_loop_goes_on_during_a_slow_upload(stub: Stub, media: S3MediaStore) -> None:
    def answer(request: Request) -> None:
        if request.method == 'PUT':
            stub.released.wait(60)

    stub.answer = answer
    task = asyncio.create_task(media.put(b''.join(pieces(8))))
    await until(lambda: 'PUT' in stub.operations())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    stub.released.set()
    await task


async def test_connections_are_used_again(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('GET', Reply(200, DATA))
    for _ in range(10):
        assert await media.get(URI) == DATA
    assert stub.connections == 1


@pytest.fixture
def kept_streams(monkeypatch: pytest.MonkeyPatch) -> list[StreamingBody]:
    """Keep every body, so that none is closed for the only reason that nothing refers to it."""
    streams: list[StreamingBody] = []
    make = StreamingBody.__init__

    def made(self: StreamingBody, *args: Any) -> None:
        make(self, *args)
        streams.append(self)

    monkeypatch.setattr(StreamingBody, '__init__', made)
    return streams


@pytest.mark.usefixtures('kept_streams')
async def test_a_reader_that_stops_early_gives_its_connection_back(stub: Stub, media: S3MediaStore) -> None:
    stub.answer = on('GET', Reply(200, os.urandom(8 * MEGABYTE)))
    for _ in range(2 * CONNECTIONS):
        async with media.open(URI) as opened:
            async for _ in opened:
                break
    await until(lambda: stub.open_connections <= 1)


@pytest.mark.usefixtures('kept_streams')
async def test_a_reader_that_is_cancelled_does_not_wait_for_the_server(stub: Stub, media: S3MediaStore) -> None:
    def stall(request: Request) -> Reply:
        stub.released.wait(60)
        return Reply(200, os.urandom(8 * MEGABYTE))

    stub.answer = stall
    task = asyncio.create_task(media.get(URI))
    await until(lambda: stub.operations() == ['GET'])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert not stub.released.is_set()
    assert stub.open_connections == 1
    # Its thread closes the connection when it gets the answer that nobody waits for.
    stub.released.set()
    await until(lambda: stub.open_connections == 0)


async def test_a_closed_store_is_not_used_again(stub: Stub) -> None:
    media = stub.store()
    await media.put(DATA)
    await media.aclose()
    await media.aclose()
    stub.requests.clear()
    for method in (media.exists, media.get, media.get_metadata, lambda uri: media.put(DATA)):
        with pytest.raises(StoreError, match='closed'):
            await method(URI)
    await until(lambda: stub.open_connections == 0)
    assert stub.requests == []


async def test_a_store_that_was_never_used_can_be_closed(stub: Stub) -> None:
    await stub.store().aclose()
    assert stub.connections == 0


async def test_closing_waits_for_what_is_under_way(stub: Stub) -> None:
    def answer(request: Request) -> None:
        if request.method == 'PUT':
            stub.released.wait(60)

    stub.answer = answer
    media = stub.store()
    put = asyncio.create_task(media.put(DATA))
    await until(lambda: 'PUT' in stub.operations())
    closing = asyncio.create_task(media.aclose())
    await until(lambda: media._client._is_closed)
    assert not closing.done()
    stub.released.set()
    await closing
    assert await put == URI


def test_a_store_serves_one_event_loop_after_another(stub: Stub) -> None:
    media = stub.store()
    stub.answer = on('GET', Reply(200, DATA))
    for _ in range(2):
        assert asyncio.run(media.put(DATA)) == URI
        assert asyncio.run(media.get(URI)) == DATA
    asyncio.run(media.aclose())


# --- settings ---


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith('AWS_') and name != 'AWS_CA_BUNDLE']:
        monkeypatch.delenv(name)
    for name in ('AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE', 'BOTO_CONFIG'):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')


@pytest.mark.usefixtures('no_credentials')
async def test_credentials_are_found_by_boto3(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('AWS_ACCESS_KEY_ID', 'found')
    monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'secret')
    monkeypatch.setenv('AWS_SESSION_TOKEN', 'token')
    async with aclosing(stub.store(access_key_id=None, secret_access_key=None, region=None)) as media:
        await media.put(DATA)
    assert 'Credential=found/' in stub.requests[0].headers['authorization']
    assert stub.requests[0].headers['x-amz-security-token'] == 'token'


@pytest.mark.usefixtures('no_credentials')
async def test_there_are_no_credentials(stub: Stub) -> None:
    async with aclosing(stub.store(access_key_id=None, secret_access_key=None)) as media:
        with pytest.raises(ConfigurationError, match='credentials'):
            await media.put(DATA)


async def test_a_session_token_and_a_region_are_used(stub: Stub) -> None:
    async with aclosing(stub.store(session_token='temporary', region='auto')) as media:
        await media.put(DATA)
    assert stub.requests[0].headers['x-amz-security-token'] == 'temporary'
    assert '/auto/s3/aws4_request' in stub.requests[0].headers['authorization']


@pytest.mark.parametrize(
    'settings',
    [
        {'bucket': ''},
        {'access_key_id': 'key'},
        {'secret_access_key': 'secret'},
        {'session_token': 'token'},
        {'timeout': 0},
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        S3MediaStore(**{'bucket': 'bucket', **settings})


@pytest.mark.parametrize('settings', [{'endpoint': 'not a url'}, {'bucket': 'no/such name'}])
async def test_settings_that_boto3_refuses(stub: Stub, settings: dict[str, str]) -> None:
    media = S3MediaStore(
        **{'bucket': 'bucket', 'endpoint': stub.endpoint, 'access_key_id': 'k', 'secret_access_key': 's', **settings}
    )
    async with aclosing(media):
        with pytest.raises(ConfigurationError):
            await media.put(DATA)
    assert stub.requests == []


async def test_secrets_are_in_no_representation(stub: Stub) -> None:
    media = stub.store(secret_access_key='hidden-1', session_token='hidden-2')
    assert 'hidden' not in repr(vars(media._client))
    await media.aclose()


async def test_a_checksum_of_s3_that_does_not_match(stub: Stub) -> None:
    stub.answer = on('GET', Reply(200, DATA, {'x-amz-checksum-crc32': 'AAAAAA=='}))
    async with aclosing(stub.store(checksums=True)) as media:
        with pytest.raises(StoreCorruptionError):
            await media.get(URI)


def test_without_boto3_the_extra_is_named() -> None:
    code = """
from harness_temporal.errors import ConfigurationError
from harness_temporal.media import S3MediaStore
try:
    S3MediaStore('bucket')
except ConfigurationError as error:
    print(error)
"""
    message = "`S3MediaStore` needs boto3: install 'harness-temporal[s3]'."
    assert run_without(['boto3', 'botocore'], code).strip() == message
