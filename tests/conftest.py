"""Services that tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from importlib.util import find_spec
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from harness_temporal.temporal.dev_server import DevServer, dev_server
from tests.conformance.opening import drop_schema
from tests.mongo_server import drop_database, mongo_url
from tests.postgres_server import OpenPool, Sql, postgres_dsn
from tests.s3_server import Bucket, S3Server, new_bucket, s3_server
from tests.scratch import keep_files_in_memory

keep_files_in_memory()


def missing_service(reason: str) -> NoReturn:
    """Skip, where a laptop has no such service; fail, where it was promised."""
    if os.environ.get('REQUIRE_ALL_BACKENDS') == '1':
        pytest.fail(f'REQUIRE_ALL_BACKENDS is set: {reason}')
    pytest.skip(reason)


@pytest.fixture(scope='session')
def postgres() -> Iterator[str]:
    """Yield the DSN of one server for the session, or for the worker of `pytest-xdist`."""
    if find_spec('asyncpg') is None:
        missing_service('asyncpg is not installed')
    with ExitStack() as stack:
        try:
            dsn = stack.enter_context(postgres_dsn())
        except (RuntimeError, OSError) as error:
            missing_service(f'no PostgreSQL: {error}')
        yield dsn


@pytest.fixture
async def schema(postgres: str) -> AsyncIterator[str]:
    """Yield the name of a schema that is there for one test."""
    schema = f'test_{uuid4().hex}'
    yield schema
    await drop_schema(postgres, schema)


@pytest.fixture
async def open_pool(postgres: str) -> AsyncIterator[OpenPool]:
    """Yield what makes pools of connections, which end with the test."""
    import asyncpg

    async with AsyncExitStack() as stack:

        async def open_pool(**settings: Any) -> Any:
            return await stack.enter_async_context(asyncpg.create_pool(postgres, **{'min_size': 1, **settings}))

        yield open_pool


@pytest.fixture
async def sql(open_pool: OpenPool, schema: str) -> Sql:
    """Run statements beside the store, on one connection, with the schema of the test as the place of names."""
    pool = await open_pool(max_size=1, server_settings={'search_path': schema})
    return pool.fetch


@pytest.fixture(scope='session')
def mongo() -> Iterator[str]:
    """Yield the URL of one server for the session, or for the worker of `pytest-xdist`."""
    if find_spec('pymongo') is None:
        missing_service('pymongo is not installed')
    with ExitStack() as stack:
        try:
            url = stack.enter_context(mongo_url())
        except (RuntimeError, OSError) as error:
            missing_service(f'no MongoDB: {error}')
        yield url


@pytest.fixture
async def database(mongo: str) -> AsyncIterator[str]:
    """Yield the name of a database of MongoDB that is there for one test."""
    database = f'test_{uuid4().hex}'
    yield database
    await drop_database(mongo, database)


@pytest.fixture(scope='session')
def s3() -> Iterator[S3Server]:
    """Yield one server for the session, or for the worker of `pytest-xdist`."""
    if find_spec('boto3') is None:
        missing_service('boto3 is not installed')
    with ExitStack() as stack:
        try:
            server = stack.enter_context(s3_server())
        except (RuntimeError, OSError) as error:
            missing_service(f'no S3: {error}')
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[Bucket]:
    """Yield an empty bucket."""
    with new_bucket(s3) as bucket:
        yield bucket


@pytest.fixture(scope='session')
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """Yield one server for the session, or for the worker of `pytest-xdist`."""
    with dev_server(ui=False, log=tmp_path_factory.mktemp('temporal') / 'server.log') as server:
        yield server


@pytest.fixture
def task_queue() -> str:
    """Return the name of a task queue that nobody else uses."""
    return f'tests-{uuid4()}'
