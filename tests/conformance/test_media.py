from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harness_temporal.media import BaseMediaStore, DiskMediaStore, PublicUrlResolver, SqliteMediaStore
from harness_temporal.testing import MediaStoreConformance, OpenMediaStore
from tests.s3_server import Bucket


@asynccontextmanager
async def closing_what_it_opens(
    make: Callable[[PublicUrlResolver | None], BaseMediaStore],
) -> AsyncIterator[OpenMediaStore]:
    async with AsyncExitStack() as stack:

        async def open_media(*, public_url: PublicUrlResolver | None = None) -> BaseMediaStore:
            media = make(public_url)
            stack.push_async_callback(media.aclose)
            return media

        yield open_media


class TestDiskMediaStore(MediaStoreConformance):
    @pytest.fixture
    async def open_media(self, tmp_path: Path) -> AsyncIterator[OpenMediaStore]:
        async with closing_what_it_opens(lambda url: DiskMediaStore(tmp_path / 'media', public_url=url)) as open_media:
            yield open_media


class TestSqliteMediaStore(MediaStoreConformance):
    @pytest.fixture
    async def open_media(self, tmp_path: Path) -> AsyncIterator[OpenMediaStore]:
        async with closing_what_it_opens(
            lambda url: SqliteMediaStore(tmp_path / 'media.db', public_url=url)
        ) as open_media:
            yield open_media


@pytest.mark.postgres
class TestPostgresMediaStore(MediaStoreConformance):
    @pytest.fixture
    async def open_media(self, postgres: str, schema: str) -> AsyncIterator[OpenMediaStore]:
        from harness_temporal.media import PostgresMediaStore

        async with closing_what_it_opens(
            lambda url: PostgresMediaStore(postgres, schema=schema, public_url=url)
        ) as open_media:
            yield open_media


@pytest.mark.mongo
class TestMongoMediaStore(MediaStoreConformance):
    @pytest.fixture
    async def open_media(self, mongo: str, database: str) -> AsyncIterator[OpenMediaStore]:
        from harness_temporal.media import MongoMediaStore

        async with closing_what_it_opens(
            lambda url: MongoMediaStore(db_url=mongo, database=database, public_url=url)
        ) as open_media:
            yield open_media


@pytest.mark.s3
class TestS3MediaStore(MediaStoreConformance):
    @pytest.fixture
    async def open_media(self, bucket: Bucket) -> AsyncIterator[OpenMediaStore]:
        async with closing_what_it_opens(lambda url: bucket.store(key_prefix='media/', public_url=url)) as open_media:
            yield open_media
