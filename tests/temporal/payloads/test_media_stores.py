"""Payloads in the media stores of several machines: a run, sealed, and its replay by a process that has nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import pytest

from harness_temporal.encryption.keys import parse_keys
from harness_temporal.media import BaseMediaStore
from harness_temporal.media.uri import uri_of
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage
from tests.s3_server import Bucket, S3Server
from tests.temporal.payloads.workers import Setup, noise

pytestmark = pytest.mark.temporal

Open = Callable[[], BaseMediaStore]


@dataclass(frozen=True, kw_only=True)
class Elsewhere(Setup):
    """Has payloads in a store that each process opens for itself."""

    open: Open

    def payloads(self) -> PayloadStorage:
        return PayloadStorage(opened(self.open), keys=KeyRing.of(*parse_keys(self.keys, 'test')))

    async def close(self) -> None:
        await opened(self.open).aclose()


@cache
def opened(open: Open) -> BaseMediaStore:
    return open()


def postgres_store(dsn: str, schema: str) -> BaseMediaStore:
    from harness_temporal.media import PostgresMediaStore

    return PostgresMediaStore(dsn, schema=schema)


def mongo_store(url: str, database: str) -> BaseMediaStore:
    from harness_temporal.media import MongoMediaStore

    return MongoMediaStore(db_url=url, database=database)


def s3_store(server: S3Server, bucket: str) -> BaseMediaStore:
    return Bucket(server, bucket, None).store(key_prefix='payloads/')


async def check_a_sealed_run(setup: Setup, open: Open) -> None:
    elsewhere = Elsewhere(
        address=setup.address,
        task_queue=setup.task_queue,
        folder=setup.folder,
        keys=Key.generate('one').dump(),
        open=open,
    )
    async with elsewhere.working():
        run = await elsewhere.start('page page', 'elsewhere')
        result = f'TOP-SECRET-RESULT {noise(3000)}'
        assert (await run.result()).output == f'{result} | {result}'
    pieces = [await opened(open).get(uri_of(blob.digest)) async for blob in opened(open).blobs()]
    assert sum(map(len, pieces)) > len(result)
    assert not any(b'TOP-SECRET-RESULT' in piece for piece in pieces)
    await elsewhere.replay(await run.fetch_history())
    await elsewhere.close()


@pytest.mark.postgres
async def test_a_run_is_replayed_from_postgres(setup: Setup, postgres: str, schema: str) -> None:
    await check_a_sealed_run(setup, partial(postgres_store, postgres, schema))


@pytest.mark.mongo
async def test_a_run_is_replayed_from_mongo(setup: Setup, mongo: str, database: str) -> None:
    await check_a_sealed_run(setup, partial(mongo_store, mongo, database))


@pytest.mark.s3
async def test_a_run_is_replayed_from_s3(setup: Setup, bucket: Bucket) -> None:
    # A copy without the client, which another process cannot be given.
    await check_a_sealed_run(setup, partial(s3_store, replace(bucket.server), bucket.name))
