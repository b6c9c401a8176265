"""Connections: where they come from, how long they live, and what their errors mean. Only this module needs asyncpg."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

from harness_temporal.databases.postgres.schema import Connection, set_up
from harness_temporal.databases.postgres.sql import DATABASE, Row, Statements
from harness_temporal.errors import (
    ConfigurationError,
    HarnessError,
    HistoryMissingError,
    NotStorableError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreUnavailableError,
)

T = TypeVar('T')

_PAUSES = (0.005, 0.02, 0.1, 0.4)
"""Seconds to wait, on average, before a statement is repeated."""
_QUIET_SECONDS = 0.01
"""How long after the last call the server may have closed connections without the event loop having seen it."""
_LOOP_TURNS = 8
"""More than the turns an event loop takes from reading that a connection was closed to marking it as closed."""

_DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_ROLLED_BACK = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    ConnectionResetError,
    BrokenPipeError,
)
_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidTransactionStateError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    OSError,
)
_WRONG_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateFunctionError,
)
_TOO_LARGE = (
    asyncpg.NumericValueOutOfRangeError,
    asyncpg.DatetimeFieldOverflowError,
    asyncpg.ProgramLimitExceededError,
)


class _Pool(Awaitable[object], Protocol):
    async def acquire(self, *, timeout: float) -> Connection: ...

    async def release(self, connection: Connection) -> None: ...

    async def close(self) -> None: ...

    def is_closing(self) -> bool: ...

    def get_max_size(self) -> int: ...


class Connections:
    """Runs statements on the connections of a pool, one connection for each call. Belongs to one event loop.

    Stores of several kinds may share it: each has its own queries, for the same schema.
    """

    def __init__(
        self,
        dsn: str | None,
        pool: asyncpg.Pool | None,
        statements: Statements,
        *,
        max_pool_size: int,
        acquire_timeout: float,
    ) -> None:
        if (dsn is None) == (pool is None):
            raise ConfigurationError('Give either `dsn` or `pool`.')
        if max_pool_size < 1 or acquire_timeout <= 0:
            raise ConfigurationError('`max_pool_size` must be at least 1, and `acquire_timeout` more than 0.')
        self._dsn = dsn
        self._pool = None if pool is None else cast(_Pool, pool)
        self._loop: asyncio.AbstractEventLoop | None = getattr(pool, '_loop', None)
        self._statements = statements
        self._max_pool_size = max_pool_size
        self._acquire_timeout = acquire_timeout
        self._setting_up = asyncio.Lock()
        self._is_set_up = False
        self._is_closed = False
        self._last_use = 0.0

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return self._statements.schema_name

    async def fetch(self, query: str, *arguments: object, repeatable: bool = True) -> list[Row]:
        """Run one statement, which is a transaction of its own, and return its rows.

        It is run again if it was rolled back for another's sake and, if it is `repeatable`, when its connection broke.
        """
        return await self._repeated(lambda connection: connection.fetch(query, *arguments), repeatable=repeatable)

    async def transact(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one transaction, on one connection that it has for itself, and return what it returns.

        It is run again where `fetch` would run a statement again, so doing it twice must be the same as doing it once.
        """

        async def in_transaction(connection: Connection) -> T:
            async with connection.transaction(isolation='read_committed'):
                return await work(connection)

        return await self._repeated(in_transaction, repeatable=True)

    async def aclose(self) -> None:
        """Close for good; a given pool stays open."""
        own_pool = self._pool if self._dsn is not None else None
        if own_pool is not None and not self._is_closed:
            self._check_usable()
            self._is_closed = True
            # The pool cuts off what does not end in time.
            with _translated(), suppress(TimeoutError):
                await asyncio.wait_for(own_pool.close(), self._acquire_timeout)
        self._is_closed = True

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]], *, repeatable: bool) -> T:
        with _translated():
            for pause in _PAUSES:
                try:
                    return await self._run(work)
                except _ROLLED_BACK:
                    pass
                except _LOST as error:
                    # A `ValueError` is the driver's refusal of an argument or a setting.
                    if not repeatable or isinstance(error, ValueError):
                        raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            return await self._run(work)

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        if loop.time() - self._last_use > _QUIET_SECONDS:
            # The pool gives out a dead connection as long as the loop has not seen that the server closed it.
            for _ in range(_LOOP_TURNS):
                await asyncio.sleep(0)
        async with self._acquired(await self._ready_pool()) as connection:
            result = await work(connection)
        self._last_use = loop.time()
        return result

    async def _ready_pool(self) -> _Pool:
        self._check_usable()
        if self._pool is None:
            # Nothing that a statement here leaves on a connection needs a reset, which would be a round trip.
            pool = asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType] - asyncpg is half typed
                self._dsn, min_size=0, max_size=self._max_pool_size, reset=_no_reset
            )
            self._pool = cast(_Pool, pool)
        if self._pool.is_closing():
            raise StoreError(DATABASE, 'the pool that it was given is closed.')
        if not self._is_set_up:
            await self._set_up(self._pool)
        return self._pool

    async def _set_up(self, pool: _Pool) -> None:
        try:
            async with asyncio.timeout(self._acquire_timeout):
                await self._setting_up.acquire()
        except TimeoutError as error:
            raise self._no_connection('another call is still setting up the schema') from error
        try:
            if not self._is_set_up:
                await pool
                async with self._acquired(pool) as connection:
                    await set_up(connection, self._statements)
                self._is_set_up = True
        finally:
            self._setting_up.release()

    @asynccontextmanager
    async def _acquired(self, pool: _Pool) -> AsyncGenerator[Connection]:
        try:
            connection = await pool.acquire(timeout=self._acquire_timeout)
        except TimeoutError as error:
            why = f'the {pool.get_max_size()} of the pool are busy, or the server does not answer'
            raise self._no_connection(why) from error
        except ValueError as error:
            # What asyncpg reads out of a DSN, like its port, it does not wrap in an error of its own.
            if isinstance(error, asyncpg.InterfaceError):
                raise
            raise ConfigurationError(f'The `dsn` cannot be used: {error}.') from error
        try:
            yield connection
        finally:
            # The pool replaces a connection that it cannot clean up; what was done on it stands.
            with suppress(*_DRIVER_ERRORS):
                await pool.release(connection)

    def _no_connection(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(DATABASE, f'no connection within {self._acquire_timeout:g} seconds: {why}.')

    def _check_usable(self) -> None:
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise StoreLoopError(
                DATABASE,
                'its connections belong to another event loop. Make one store (and pool) per event loop, and close it '
                'there.',
            )
        if self._is_closed:
            raise StoreError(DATABASE, 'the store is closed.')


async def _no_reset(connection: object) -> None: ...


@contextmanager
def _translated() -> Generator[None]:
    """Turn what asyncpg raises into errors of this package."""
    try:
        yield
    except _DRIVER_ERRORS as error:
        raise _meaning(error) from error


def _meaning(error: BaseException) -> HarnessError:
    reason = str(error) or type(error).__name__
    if isinstance(error, asyncpg.ForeignKeyViolationError):
        return HistoryMissingError(DATABASE, f'a history that a snapshot extends is not here ({reason}).')
    if isinstance(error, _TOO_LARGE):
        return NotStorableError('A record', f'a value is too large for PostgreSQL: {reason}.')
    if isinstance(error, _WRONG_SCHEMA):
        return StoreSchemaError(DATABASE, f'the schema is not as this release made it: {reason}.')
    if isinstance(error, asyncpg.ClientConfigurationError):
        return ConfigurationError(f'The `dsn` or `pool` cannot be used: {reason}.')
    if isinstance(error, _UNAVAILABLE) and not isinstance(error, ValueError):
        return StoreUnavailableError(DATABASE, f'{reason}.')
    return StoreError(DATABASE, f'{reason}.')
