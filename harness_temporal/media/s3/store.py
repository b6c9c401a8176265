"""The store: what is asked of S3, and what is made of its answers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from threading import Event
from typing import Any

from harness_temporal.errors import ConfigurationError, StoreError, StoreUnavailableError
from harness_temporal.media.blob import Blob, StoredBlob
from harness_temporal.media.context import (
    NO_CONTEXT,
    KeyStrategy,
    MediaContext,
    PublicUrlResolver,
    default_key_strategy,
)
from harness_temporal.media.keys import checked_key, digest_in
from harness_temporal.media.protocol import TOUCH_INTERVAL, BaseMediaStore
from harness_temporal.media.s3.body import Body
from harness_temporal.media.s3.client import Access, Answer, Client, S3Client
from harness_temporal.media.s3.errors import STORE, call, no_bucket, status_of
from harness_temporal.media.s3.headers import object_headers, read_digest, read_metadata
from harness_temporal.media.s3.upload import Upload
from harness_temporal.media.uri import digest_of, uri_of
from harness_temporal.records import utc_now

_LARGEST_COPY = 5 << 30
"""Bytes that S3 copies in one request."""
_KEPT_HEADERS = ('ContentType', 'CacheControl', 'ContentDisposition', 'ContentEncoding', 'ContentLanguage')


class S3MediaStore(BaseMediaStore):
    """Keeps each blob in an object of a bucket of AWS S3, Cloudflare R2 (`region='auto'`), MinIO or alike.

    Nothing happens before the first use. URLs have the bucket in their path. At most 16 requests are under way at a
    time, each of which is sent up to three times. Blobs of more than 16 MiB are uploaded in parts. A blob that is put
    again keeps its metadata and content type; if its last put is more than five minutes ago, the object is copied onto
    itself, which makes it young again.

    It needs the rights `s3:GetObject`, `s3:PutObject` and `s3:AbortMultipartUpload`; with `s3:ListBucket` S3 tells
    blobs that are missing from those that may not be read, and collection needs it, `s3:DeleteObject` and
    `s3:ListBucketMultipartUploads`. With credentials that may only write, a blob that is put again is uploaded again,
    with the metadata of that put.

    A key strategy may give keys without the digest. Then S3 is asked to refuse to overwrite (`If-None-Match`), and a
    blob is never collected.

    Args:
        bucket: The bucket. It is not made.
        endpoint: The URL of the service; `None` for AWS, or what boto3 finds in its settings.
        region: The region; `None` for what boto3 finds.
        access_key_id: With `secret_access_key`, the credentials; `None` for those that boto3 finds.
        secret_access_key: See `access_key_id`.
        session_token: Goes with temporary credentials.
        key_prefix: What every object's key begins with, such as `media/`. It is taken as it is.
        key_strategy: Gives the rest of each blob's key; by default `<sha256>.bin`.
        public_url: Gives the URL from which a model may fetch a blob.
        checksums: Whether to send and check S3's own checksums, which not every service knows. The digest of a blob
            is checked in any case.
        timeout: How many seconds to wait for a connection, and for the next bytes of an answer.
    """

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        key_prefix: str = '',
        key_strategy: KeyStrategy = default_key_strategy,
        public_url: PublicUrlResolver | None = None,
        checksums: bool = False,
        timeout: float = 20.0,
    ) -> None:
        super().__init__(public_url=public_url)
        if find_spec('boto3') is None:
            raise ConfigurationError(f"`{STORE}` needs boto3: install 'harness-temporal[s3]'.")
        if not bucket:
            raise ConfigurationError('`bucket` must be the name of a bucket.')
        if (access_key_id is None) != (secret_access_key is None):
            raise ConfigurationError('Give both `access_key_id` and `secret_access_key`, or neither.')
        if session_token is not None and access_key_id is None:
            raise ConfigurationError('`session_token` goes with `access_key_id` and `secret_access_key`.')
        if timeout <= 0:
            raise ConfigurationError(f'`timeout` must be more than 0, got {timeout}.')
        _check_prefix(key_prefix)
        self._bucket = bucket
        self._prefix = key_prefix
        self._key_strategy = key_strategy
        self._checksums = checksums
        self._is_bucket_there = False
        self._client = Client(
            Access(
                endpoint=endpoint,
                region=region,
                access_key_id=access_key_id,
                secret_access_key=secret_access_key,
                session_token=session_token,
                timeout=timeout,
                checksums=checksums,
            )
        )

    async def aclose(self) -> None:
        """Wait for the requests that are under way and close the store. A closed store cannot be used again."""
        await self._client.aclose()

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        key = self._key(digest_of(uri), context)
        return await self._client.run(lambda client: self._look(client, key)) is not None

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        digest = digest_of(uri)
        key = self._key(digest, context)
        found = await self._client.run(lambda client: self._look(client, key))
        if found is None:
            raise self._not_found(digest)
        return read_metadata(found.metadata, uri)

    async def blobs(self) -> AsyncGenerator[StoredBlob]:
        token = None
        while True:
            items, token = await self._client.run(
                lambda client, token=token: self._list_page(client, self._prefix, token)
            )
            for item in items:
                digest = self._digest_in(item)
                if digest is not None:
                    yield StoredBlob(digest, item['Size'], item['LastModified'])
            if token is None:
                return

    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        """Delete a blob unless it was put since then, and return whether it was deleted.

        S3 looks and deletes in two requests. A put that touches the blob between them, within milliseconds, is lost.
        No condition on the second request closes this: the touched object has the same content, and so the same
        `ETag`. A blob gets there only when nothing refers to it and nobody put it for the whole grace period. One that
        was put within `TOUCH_INTERVAL` is not touched by another put, so the grace period has to be longer than that.
        """
        return await self._client.run(lambda client: self._delete(client, digest, untouched_since))

    async def delete_leftovers(self, *, untouched_since: datetime) -> int:
        """Abort unfinished uploads of blobs that began before then, and return how many there were.

        MinIO does not list them, and removes them by itself after a day.
        """
        return await self._client.run(lambda client: self._delete_leftovers(client, untouched_since))

    async def _write(self, blob: Blob, context: MediaContext) -> None:
        key = self._key(blob.digest, context)
        headers = object_headers(context, None if digest_in(key) == blob.digest else blob.digest)
        await self._client.run_to_end(lambda client, stop: self._put(client, stop, blob, key, headers))

    async def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        key = self._key(digest, context)
        body = Body(lambda client: self._open(client, key, digest))
        try:
            while piece := await self._client.run(body.read):
                yield piece
        finally:
            if not body.close_at_once():
                self._client.start(body.close)

    def _key(self, digest: str, context: MediaContext) -> str:
        key = checked_key(self._key_strategy(uri_of(digest), context))
        return checked_key(self._prefix + key)

    # --- in a thread ---

    def _head(self, client: S3Client, key: str) -> _Found | None:
        """Return what is said of an object; `None` if it is missing, or its bucket, which S3 does not tell here."""
        try:
            answer = call(client.head_object, Bucket=self._bucket, Key=key)
        except StoreError as error:
            if status_of(error) == 404:
                return None
            raise
        return _Found.of(answer)

    def _look(self, client: S3Client, key: str) -> _Found | None:
        found = self._head(client, key)
        if found is None and not self._is_bucket_there:
            try:
                call(client.head_bucket, Bucket=self._bucket)
            except StoreError as error:
                if status_of(error) == 404:
                    raise no_bucket(self._bucket) from error
                # Whoever may not ask for the bucket may still read from it.
                return None
        self._is_bucket_there = True
        return found

    def _open(self, client: S3Client, key: str, digest: str) -> Any:
        try:
            return call(client.get_object, Bucket=self._bucket, Key=key)['Body']
        except StoreError as error:
            if status_of(error) == 404:
                raise self._not_found(digest) from error
            raise

    def _put(self, client: S3Client, stop: Event, blob: Blob, key: str, headers: Mapping[str, Any]) -> None:
        names_blob = digest_in(key) == blob.digest
        found = None
        try:
            found = self._find(client, blob, key)
        except StoreUnavailableError:
            raise
        except StoreError:
            # Whoever may not look may still write, if it is certain that no other blob is there.
            if not names_blob:
                raise
        upload = Upload(
            client=client,
            bucket=self._bucket,
            key=key,
            blob=blob,
            headers=headers if found is None else found.headers,
            only_if_absent=found is None and not names_blob,
            checksums=self._checksums,
            stop=stop,
        )
        if found is not None and found.size == blob.size:
            if found.age > TOUCH_INTERVAL:
                self._touch(client, key, found, upload)
            return
        try:
            upload.run()
        except StoreError as error:
            # Somebody was faster: the object is there now, and may be the same blob.
            if status_of(error) != 412 or self._find(client, blob, key) is None:
                raise

    def _find(self, client: S3Client, blob: Blob, key: str) -> _Found | None:
        """Return what is said of a blob's object.

        Raises:
            ConfigurationError: It is another blob's.
        """
        found = self._head(client, key)
        if found is None or digest_in(key) == blob.digest:
            return found
        digest = read_digest(found.metadata, uri_of(blob.digest))
        if digest is None and found.size == blob.size:
            digest = self._content_digest(client, key, blob.digest)
        if digest != blob.digest:
            raise ConfigurationError(f'The key strategy gives {key!r} to two different blobs.')
        return found

    def _content_digest(self, client: S3Client, key: str, digest: str) -> str:
        body, actual = Body(lambda client: self._open(client, key, digest)), hashlib.sha256()
        try:
            while piece := body.read(client):
                actual.update(piece)
        finally:
            body.close()
        return actual.hexdigest()

    def _touch(self, client: S3Client, key: str, found: _Found, upload: Upload) -> None:
        if found.size <= _LARGEST_COPY:
            source = {'Bucket': self._bucket, 'Key': key}
            try:
                answer = call(
                    client.copy_object, **source, CopySource=source, MetadataDirective='REPLACE', **found.headers
                )
                # S3 says 200 before it copies. boto3 takes an answer that ends there for success.
                if answer.get('CopyObjectResult'):
                    return
            except StoreUnavailableError:
                raise
            except StoreError:
                # It is archived, or was deleted just now, or these credentials or this service do not copy.
                pass
        upload.run()

    def _list(self, client: S3Client, prefix: str) -> Generator[Answer]:
        token = None
        while True:
            items, token = self._list_page(client, prefix, token)
            yield from items
            if token is None:
                return

    def _list_page(self, client: S3Client, prefix: str, token: str | None) -> tuple[list[Answer], str | None]:
        after = {} if token is None else {'ContinuationToken': token}
        answer = call(client.list_objects_v2, Bucket=self._bucket, Prefix=prefix, **after)
        return answer.get('Contents', []), answer.get('NextContinuationToken')

    def _delete(self, client: S3Client, digest: str, untouched_since: datetime) -> bool:
        key = self._key(digest, NO_CONTEXT)
        # What follows the digest, such as a suffix for the media type, may have depended on the context.
        objects = self._of_blob(client, digest, key[: key.rfind(digest) + len(digest)]) if digest in key else []
        if not objects and self._key_strategy is not default_key_strategy:
            objects = self._of_blob(client, digest, self._prefix)
        old = [item for item in objects if item['LastModified'] < untouched_since]
        for item in old:
            call(client.delete_object, Bucket=self._bucket, Key=item['Key'])
        return bool(old)

    def _of_blob(self, client: S3Client, digest: str, prefix: str) -> list[Answer]:
        return [item for item in self._list(client, prefix) if self._digest_in(item) == digest]

    def _digest_in(self, item: Answer) -> str | None:
        return digest_in(item['Key'].removeprefix(self._prefix))

    def _delete_leftovers(self, client: S3Client, untouched_since: datetime) -> int:
        count = 0
        answer: Answer = {'IsTruncated': True}
        while answer.get('IsTruncated'):
            after = {
                name: answer[f'Next{name}'] for name in ('KeyMarker', 'UploadIdMarker') if answer.get(f'Next{name}')
            }
            answer = call(client.list_multipart_uploads, Bucket=self._bucket, Prefix=self._prefix, **after)
            for item in answer.get('Uploads', []):
                # Another application may share the bucket.
                if self._digest_in(item) is not None and item['Initiated'] < untouched_since:
                    count += self._abort(client, item)
        return count

    def _abort(self, client: S3Client, upload: Answer) -> bool:
        try:
            call(client.abort_multipart_upload, Bucket=self._bucket, Key=upload['Key'], UploadId=upload['UploadId'])
        except StoreError as error:
            if status_of(error) != 404:
                raise
            return False
        return True


@dataclass(frozen=True)
class _Found:
    """An object that is there."""

    size: int
    age: timedelta
    """Since its last put, by the clock of S3: ours may differ."""
    headers: Mapping[str, Any]
    """What it was put with, as parameters of boto3."""

    @classmethod
    def of(cls, answer: Answer) -> _Found:
        kept = {name: answer[name] for name in _KEPT_HEADERS if name in answer}
        date = answer['ResponseMetadata']['HTTPHeaders'].get('date')
        now = utc_now() if date is None else parsedate_to_datetime(date)
        return cls(answer['ContentLength'], now - answer['LastModified'], {'Metadata': answer['Metadata'], **kept})

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.headers['Metadata']


def _check_prefix(prefix: str) -> None:
    try:
        checked_key(f'{prefix}x')
    except ConfigurationError as error:
        raise ConfigurationError(
            f'`key_prefix` must be the beginning of a relative path of plain names, such as `media/`, got {prefix!r}.'
        ) from error
