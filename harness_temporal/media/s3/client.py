"""A client of S3, made at its first use, and the threads in which it works.

boto3 blocks. It gets threads of its own, as many as it has connections, for all event loops together. They are not
AnyIO's, because a task that is cancelled leaves AnyIO's limiter while its thread still works and uses a connection.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from anyio import to_thread

from harness_temporal.errors import ConfigurationError, StoreError
from harness_temporal.media.s3.errors import STORE, call

T = TypeVar('T')
Answer: TypeAlias = dict[str, Any]

CONNECTIONS: Final = 16
"""How many requests a store has under way at most."""
ATTEMPTS: Final = 3
"""How often a request is sent that fails for a reason that may pass."""


class S3Client(Protocol):
    """What is used of boto3's client, which has no types."""

    def abort_multipart_upload(self, **parameters: object) -> Answer: ...
    def complete_multipart_upload(self, **parameters: object) -> Answer: ...
    def copy_object(self, **parameters: object) -> Answer: ...
    def create_multipart_upload(self, **parameters: object) -> Answer: ...
    def delete_object(self, **parameters: object) -> Answer: ...
    def get_object(self, **parameters: object) -> Answer: ...
    def head_bucket(self, **parameters: object) -> Answer: ...
    def head_object(self, **parameters: object) -> Answer: ...
    def list_multipart_uploads(self, **parameters: object) -> Answer: ...
    def list_objects_v2(self, **parameters: object) -> Answer: ...
    def put_object(self, **parameters: object) -> Answer: ...
    def upload_part(self, **parameters: object) -> Answer: ...
    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where S3 is, and as whom to use it."""

    endpoint: str | None
    region: str | None
    access_key_id: str | None
    secret_access_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    timeout: float
    checksums: bool


class Client:
    """Does work in threads, with one client of boto3. Usable from any event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix='harness-s3')
        self._lock = Lock()
        self._client: S3Client | None = None
        self._is_closed = False

    async def aclose(self) -> None:
        """Wait for the requests that are under way and close every connection."""
        if not self._is_closed:
            self._is_closed = True
            await to_thread.run_sync(self._close)

    async def run(self, work: Callable[[S3Client], T]) -> T:
        """Do work. Whoever is cancelled does not wait for its end."""
        return await asyncio.wrap_future(self._submit(work))

    async def run_to_end(self, work: Callable[[S3Client, Event], T]) -> T:
        """Do work that has to be ended in order: whoever is cancelled sets the event and waits."""
        stop = Event()
        job = self._submit(lambda client: work(client, stop))
        done = asyncio.wrap_future(job)
        done.add_done_callback(_retrieve)
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            stop.set()
            if not job.cancel():
                await asyncio.wait([done])
            raise
        return done.result()

    def start(self, work: Callable[[], object]) -> None:
        """Do work in a thread that nobody waits for."""
        self._threads.submit(work)

    def _submit(self, work: Callable[[S3Client], T]) -> Future[T]:
        if self._is_closed:
            raise StoreError(STORE, 'the store is closed.')
        context = contextvars.copy_context()
        return self._threads.submit(lambda: context.run(lambda: work(self._open())))

    def _open(self) -> S3Client:
        # Making a client takes long, and a session of boto3 may not be used by two threads at once.
        with self._lock:
            if self._client is None:
                self._client = call(_make, self._access)
            return self._client

    def _close(self) -> None:
        self._threads.shutdown()
        if self._client is not None:
            self._client.close()


def _make(access: Access) -> S3Client:
    from boto3.session import Session  # pyright: ignore[reportMissingTypeStubs] - it ships none
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    checks = 'when_supported' if access.checksums else 'when_required'
    config = Config(
        signature_version='s3v4',
        s3={'addressing_style': 'path'},
        retries={'mode': 'standard', 'total_max_attempts': ATTEMPTS},
        connect_timeout=access.timeout,
        read_timeout=access.timeout,
        max_pool_connections=CONNECTIONS,
        request_checksum_calculation=checks,
        response_checksum_validation=checks,
    )
    make = cast('Callable[..., S3Client]', Session().client)  # pyright: ignore[reportUnknownMemberType]
    try:
        return make(
            's3',
            region_name=access.region,
            endpoint_url=access.endpoint,
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            config=config,
        )
    except ValueError as error:
        raise ConfigurationError(f'The settings of the `{STORE}` cannot be used: {error}.') from error


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Tell asyncio that nobody misses the error of work whose caller is gone."""
    if not done.cancelled():
        done.exception()
