"""An S3 for the tests: the one that `HARNESS_TEST_S3_ENDPOINT` names, or one of our own.

Another one is used with the credentials that boto3 finds, and needs the right to make and delete buckets. Our own is
moto, in a process of its own; it keeps its data in memory and in temporary files and is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.media.s3 import S3MediaStore
from harness_temporal.temporal.dev_server import free_port

ENDPOINT_VARIABLE = 'HARNESS_TEST_S3_ENDPOINT'
_START_TIMEOUT = 60.0


@dataclass(frozen=True)
class S3Server:
    """Where a server is, and the credentials to use it with; `None` for those that boto3 finds."""

    endpoint: str
    access_key_id: str | None = None
    secret_access_key: str | None = None

    @cached_property
    def client(self) -> Any:
        """One client of boto3 for all that the tests do beside a store: to make one takes longer than most tests."""
        from boto3.session import Session

        return Session().client(
            's3',
            region_name='us-east-1',
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own for a test."""

    server: S3Server
    name: str
    client: Any

    def store(self, **settings: Any) -> S3MediaStore:
        """Open a store."""
        return S3MediaStore(
            self.name,
            endpoint=self.server.endpoint,
            region='us-east-1',
            access_key_id=self.server.access_key_id,
            secret_access_key=self.server.secret_access_key,
            **settings,
        )

    def keys(self) -> list[str]:
        """Return the keys of the objects that are there."""
        return [item['Key'] for item in self.client.list_objects_v2(Bucket=self.name).get('Contents', [])]

    def uploads(self) -> list[str]:
        """Return the keys of the uploads that are neither completed nor aborted."""
        return [item['Key'] for item in self.client.list_multipart_uploads(Bucket=self.name).get('Uploads', [])]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Yield a server to test against. Use it once per session, and a bucket of its own per test."""
    if endpoint := os.environ.get(ENDPOINT_VARIABLE):
        with _closing(S3Server(endpoint)) as server:
            yield server
        return
    with own_s3_server() as server:
        yield server


@contextmanager
def own_s3_server() -> Iterator[S3Server]:
    """Yield one of our own, on this machine."""
    if find_spec('moto') is None:
        raise RuntimeError(f'Install `moto[s3,server]`, or set {ENDPOINT_VARIABLE} to the endpoint of a server.')
    directory = Path(tempfile.mkdtemp(prefix='harness-s3-'))
    port = free_port()
    with (directory / 'log').open('wb') as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'moto.server', '-H', '127.0.0.1', '-p', str(port)],
            stdout=log,
            stderr=log,
            cwd=directory,
            env={**os.environ, 'TMPDIR': str(directory)},
        )
    try:
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f'moto does not start:\n{(directory / "log").read_text(errors="replace")}')
            time.sleep(0.05)
        with _closing(S3Server(f'http://127.0.0.1:{port}', 'test', 'test')) as server:
            yield server
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _closing(server: S3Server) -> Iterator[S3Server]:
    with _descriptions_read_once():
        try:
            yield server
        finally:
            server.client.close()


@contextmanager
def _descriptions_read_once() -> Iterator[None]:
    """Keep what botocore reads of S3: every session parses a megabyte of JSON anew, and every store has a session."""
    from botocore.loaders import JSONFileLoader

    load = cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, 'load_file', lambda _, path: load(path))
        yield


@contextmanager
def new_bucket(server: S3Server) -> Iterator[Bucket]:
    """Make a bucket, and delete it with everything in it."""
    client, name = server.client, f'harness-{uuid4().hex}'
    client.create_bucket(Bucket=name)
    try:
        yield Bucket(server, name, client)
    finally:
        for page in client.get_paginator('list_objects_v2').paginate(Bucket=name):
            if objects := [{'Key': item['Key']} for item in page.get('Contents', [])]:
                client.delete_objects(Bucket=name, Delete={'Objects': objects})
        for item in client.list_multipart_uploads(Bucket=name).get('Uploads', []):
            client.abort_multipart_upload(Bucket=name, Key=item['Key'], UploadId=item['UploadId'])
        client.delete_bucket(Bucket=name)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(('127.0.0.1', port), timeout=1):
        return True
    return False
