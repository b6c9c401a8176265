"""Bytes on their way into an object, in one request or in parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import IO, Any, Final

from harness_temporal.errors import HarnessError, StoreError
from harness_temporal.media.blob import CHUNK, Blob
from harness_temporal.media.s3.client import S3Client
from harness_temporal.media.s3.errors import call, cut_off, status_of

PART_SIZE: Final = 16 << 20
"""Bytes that are sent in one request; what is larger goes in parts of this size."""
_MOST_PARTS = 10_000


class _Stopped(BaseException):
    """The upload's caller is gone. No `Exception`: boto3 would take it for a broken connection and try again."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One object that is to be written."""

    client: S3Client
    bucket: str
    key: str
    blob: Blob
    headers: Mapping[str, Any]
    only_if_absent: bool
    """Whether S3 is asked to refuse, with the status 412, if there is an object already."""
    checksums: bool
    stop: Event

    def run(self) -> None:
        """Upload the blob. An object is there as a whole or not at all."""
        if self.blob.size > PART_SIZE:
            self._in_parts()
            return
        body = self._section(0, self.blob.size)
        call(self.client.put_object, **self._target, **self.headers, **self._condition, Body=body)

    @property
    def _target(self) -> dict[str, Any]:
        return {'Bucket': self.bucket, 'Key': self.key}

    @property
    def _condition(self) -> dict[str, Any]:
        return {'IfNoneMatch': '*'} if self.only_if_absent else {}

    def _in_parts(self) -> None:
        # boto3 sends checksums of its own accord, but does not announce those of parts.
        announced = {'ChecksumAlgorithm': 'CRC32'} if self.checksums else {}
        started = call(self.client.create_multipart_upload, **self._target, **self.headers, **announced)
        if 'UploadId' not in started:
            raise cut_off()
        upload = {**self._target, 'UploadId': started['UploadId']}
        try:
            parts = self._send_parts(upload)
            self._complete(upload, parts)
        except BaseException:
            # If this fails as well, `delete_leftovers` will find the parts.
            with suppress(HarnessError):
                call(self.client.abort_multipart_upload, **upload)
            raise

    def _send_parts(self, upload: Mapping[str, Any]) -> list[dict[str, Any]]:
        size = max(PART_SIZE, -(-self.blob.size // _MOST_PARTS))
        parts: list[dict[str, Any]] = []
        for number, start in enumerate(range(0, self.blob.size, size), 1):
            body = self._section(start, min(size, self.blob.size - start))
            sent = call(self.client.upload_part, **upload, PartNumber=number, Body=body)
            kept = {name: value for name, value in sent.items() if name == 'ETag' or _is_checksum(name)}
            parts.append({'PartNumber': number, **kept})
        return parts

    def _complete(self, upload: Mapping[str, Any], parts: list[dict[str, Any]]) -> None:
        if self.stop.is_set():
            raise _Stopped
        try:
            answer = call(
                self.client.complete_multipart_upload, **upload, **self._condition, MultipartUpload={'Parts': parts}
            )
            # S3 says 200 before it begins. When the connection breaks then, boto3 takes the empty answer for success.
            if 'ETag' in answer:
                return
            unsure: StoreError = cut_off()
        except StoreError as error:
            # The first attempt may have succeeded and its answer been lost: then there is no such upload any more.
            if status_of(error) != 404:
                raise
            unsure = error
        if not self._is_there():
            raise unsure

    def _is_there(self) -> bool:
        try:
            return call(self.client.head_object, **self._target)['ContentLength'] == self.blob.size
        except StoreError as error:
            if status_of(error) != 404:
                raise
            return False

    def _section(self, start: int, size: int) -> Any:
        if self.stop.is_set():
            raise _Stopped
        section = _Section(self.blob.file, start, size, self.stop)
        # For a file boto3 asks first whether the server will take it, which is one more round trip.
        return section.read() if size <= CHUNK else section


class _Section:
    """A part of a file as a file of its own."""

    def __init__(self, file: IO[bytes], start: int, size: int, stop: Event) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._stop = stop
        self._at = 0

    def __len__(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        if self._stop.is_set():
            raise _Stopped
        left = self._size - self._at
        self._file.seek(self._start + self._at)
        data = self._file.read(left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data


def _is_checksum(name: str) -> bool:
    return name.startswith('Checksum') and name != 'ChecksumType'
