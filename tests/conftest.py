"""Services that tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import NoReturn

import pytest

from tests.mongo_server import mongo_url
from tests.postgres_server import postgres_dsn
from tests.s3_server import Bucket, S3Server, new_bucket, s3_server


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
