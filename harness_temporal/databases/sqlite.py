"""A SQLite connection that many threads and event loops may use: opening, migrating, transactions, errors."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from harness_temporal.errors import (
    ConfigurationError,
    HarnessError,
    NotStorableError,
    StoreCorruptionError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)

T = TypeVar('T')
Work: TypeAlias = Callable[[sqlite3.Cursor, str], T]
DATABASE = 'SQLite'
_MEMORY = ':memory:'
_BUSY_SECONDS = 30.0
"""How long to wait for a lock that another connection holds."""
_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB})
_creating = threading.Lock()


@dataclass(eq=False)
class _Write:
    """A write that waits for its turn, and then how it went."""

    work: Work[None]
    durable: bool
    done: bool = False
    error: Exception | None = None


@dataclass(frozen=True)
class Schema:
    """The tables of one kind of store."""

    part: str
    """The name under which the database keeps what was applied, and the folder of the migrations up to a colon."""
    table: str = ''
    """What `{table}` is in the migrations."""

    def script(self, version: int) -> str:
        """Return a migration as it is run."""
        return _migrations(self.part.partition(':')[0])[version].replace('{table}', self.table)


class SqliteDatabase:
    """Runs one transaction at a time in a worker thread, on a file of its own or on a given connection."""

    def __init__(self, database: str | Path | None, connection: sqlite3.Connection | None, *schemas: Schema) -> None:
        if (database is None) == (connection is None):
            raise ConfigurationError('Give either `database` or `connection`.')
        if connection is not None:
            _check_usable_in_threads(connection)
        self._path = None if database is None else _absolute(database)
        self._connection = connection
        self._encoding = ''
        self._synchronous = ''
        self._schemas = list(schemas)
        self._ready = False
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        # Callers wait for their turn in the event loop, so that they take no threads from its other users.
        self._turn = RunVar[CapacityLimiter]('turn')

    @classmethod
    def of(cls, database: str | Path | SqliteDatabase | None, connection: sqlite3.Connection | None) -> SqliteDatabase:
        """Return the database in that file or on that connection, or the given one, which is another store's."""
        if not isinstance(database, SqliteDatabase):
            return cls(database, connection)
        if connection is not None:
            raise ConfigurationError('An open `database` has its connection: give no `connection`.')
        return database

    def add_schema(self, schema: Schema) -> None:
        """Have more tables. For another store on the same database, before it is used."""
        self._schemas.append(schema)
        self._ready = False

    async def read(self, work: Work[T]) -> T:
        """Run `work` in one transaction. It gets a cursor of plain tuples and the encoding of text read as bytes."""
        return await to_thread.run_sync(self._read, work, limiter=self._limiter())

    async def write(self, work: Work[None], *, durable: bool) -> None:
        """Run `work` as a whole or not at all, on disk with `durable` when it returns.

        Writes that wait at the same time share a transaction, so that what happens in parallel is flushed once.
        """
        write = _Write(work, durable)
        self._waiting.append(write)
        try:
            async with self._limiter():
                if not write.done:
                    # The turn is this caller's; the thread needs none.
                    await to_thread.run_sync(self._write_waiting, limiter=CapacityLimiter(1))
        except BaseException:
            with suppress(ValueError):
                self._waiting.remove(write)
            raise
        if write.error is not None:
            raise write.error

    async def aclose(self) -> None:
        """Close for good; a given connection stays open."""
        await to_thread.run_sync(self._close, limiter=self._limiter())

    def _limiter(self) -> CapacityLimiter:
        limiter = self._turn.get(None)
        if limiter is None:
            limiter = CapacityLimiter(1)
            self._turn.set(limiter)
        return limiter

    def _read(self, work: Work[T]) -> T:
        with self._lock, _mapped_errors(self._path), _transaction(self._opened(), write=False) as cursor:
            return work(cursor, self._encoding)

    def _write_waiting(self) -> None:
        with self._lock:
            group: list[_Write] = []
            while self._waiting:
                group.append(self._waiting.popleft())
            if not group:
                return
            try:
                with _mapped_errors(self._path):
                    self._write_group(group)
            except Exception as error:  # noqa: BLE001  # every caller of the group raises it
                for write in group:
                    write.error = error
            for write in group:
                write.done = True

    def _write_group(self, group: Sequence[_Write]) -> None:
        connection = self._opened()
        synchronous = 'FULL' if any(write.durable for write in group) else 'NORMAL'
        if self._path is not None and synchronous != self._synchronous:
            connection.execute(f'PRAGMA synchronous = {synchronous}')
            self._synchronous = synchronous
        with _transaction(connection, write=True):
            for write in group:
                try:
                    with _mapped_errors(self._path), _transaction(connection, write=True) as cursor:
                        write.work(cursor, self._encoding)
                except HarnessError as error:
                    if not connection.in_transaction:
                        raise
                    write.error = error

    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(DATABASE, 'the store is closed.')
        if self._connection is None:
            self._connection = _connect(self._path or '')
        if not self._ready:
            self._encoding = _encoding(self._connection)
            for schema in self._schemas:
                _migrate(self._connection, schema)
            # A caller's open transaction may still take the tables back.
            self._ready = not self._connection.in_transaction
        return self._connection

    def _close(self) -> None:
        with self._lock, _mapped_errors(self._path):
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None and self._path is not None:
                connection.close()


# --- opening ---


def _absolute(database: str | Path) -> str:
    return _MEMORY if str(database) == _MEMORY else str(Path(database).absolute())


def _check_usable_in_threads(connection: sqlite3.Connection) -> None:
    with ThreadPoolExecutor(1) as other_thread:
        try:
            other_thread.submit(sqlite3.Cursor, connection).result()
        except sqlite3.ProgrammingError as error:
            raise ConfigurationError(
                'The work is done in threads: open the `connection` with `check_same_thread=False`.'
            ) from error


def _connect(path: str) -> sqlite3.Connection:
    if path != _MEMORY:
        _create(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with ExitStack() as on_failure:
        on_failure.callback(connection.close)
        _use_wal(connection)
        # Elsewhere than on macOS this changes nothing; there, only this makes FULL mean what it says.
        connection.execute('PRAGMA fullfsync = ON')
        on_failure.pop_all()
    return connection


def _create(path: str) -> None:
    """Make the file, unless it is there, readable by its owner only. SQLite gives its side files the same mode."""
    # Closing any descriptor of a file drops all locks that this process has on it. The lock keeps another store of
    # this process from opening the file before the descriptor that made it is closed.
    try:
        with _creating, suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except (OSError, ValueError) as error:
        raise StoreUnavailableError(DATABASE, f'cannot create {path!r}: {error}') from error


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. While others switch or recover the same file, SQLite may say 'locked' without waiting."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute('PRAGMA journal_mode = WAL').fetchall()
            return
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.02)


def _encoding(connection: sqlite3.Connection) -> str:
    """Return the encoding of text that is read as bytes, which no `text_factory` can change."""
    letter: bytes = sqlite3.Cursor(connection).execute("SELECT CAST('a' AS BLOB)").fetchone()[0]
    return {b'a\0': 'utf-16-le', b'\0a': 'utf-16-be'}.get(letter, 'utf-8')


# --- transactions and errors ---


@contextmanager
def _transaction(connection: sqlite3.Connection, *, write: bool) -> Generator[sqlite3.Cursor]:
    """Run one transaction, or a part of the one that is open on the connection."""
    if connection.in_transaction:
        name = 'harness_temporal'
        begin, commit, rollback = f'SAVEPOINT {name}', f'RELEASE {name}', (f'ROLLBACK TO {name}', f'RELEASE {name}')
    else:
        begin, commit, rollback = 'BEGIN IMMEDIATE' if write else 'BEGIN', 'COMMIT', ('ROLLBACK',)
    # Made this way the cursor has no `row_factory`, whatever the connection has.
    with closing(sqlite3.Cursor(connection)) as cursor:
        cursor.execute(begin)
        try:
            yield cursor
            cursor.execute(commit)
        except BaseException:
            # Some errors, like a full disk, have ended the transaction already.
            for statement in rollback if connection.in_transaction else ():
                cursor.execute(statement)
            raise


@contextmanager
def _mapped_errors(path: str | None) -> Generator[None]:
    """Turn what `sqlite3` raises into errors of this package."""
    try:
        yield
    except OverflowError as error:
        raise NotStorableError('A record', f'a number or value is too large for SQLite: {error}.') from error
    except sqlite3.Error as error:
        code = _primary_code(error)
        reason = f'{path or "the given connection"}: {error}.'
        if code in _UNAVAILABLE:
            raise StoreUnavailableError(DATABASE, reason) from error
        if code in _CORRUPT:
            raise StoreCorruptionError(DATABASE, reason) from error
        if code == sqlite3.SQLITE_TOOBIG:
            raise NotStorableError('A record', f'a value is too large for SQLite: {error}.') from error
        raise StoreError(DATABASE, reason) from error


def _primary_code(error: sqlite3.Error) -> int | None:
    """Return the error code without its details; the `sqlite3` module's own errors have none."""
    code: int | None = getattr(error, 'sqlite_errorcode', None)
    return None if code is None else code & 0xFF


# --- migrations ---


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    if not _pending(sqlite3.Cursor(connection), schema):
        return
    with _transaction(connection, write=True) as cursor:
        # Another process may have been faster.
        for version in _pending(cursor, schema):
            try:
                _apply(cursor, schema, version)
            except sqlite3.OperationalError as error:
                if _primary_code(error) != sqlite3.SQLITE_ERROR:
                    raise
                name = f'migration {version} of {schema.part!r}'
                raise StoreSchemaError(DATABASE, f'{name} does not fit this database: {error}.') from error


def _apply(cursor: sqlite3.Cursor, schema: Schema, version: int) -> None:
    script = schema.script(version)
    cursor.execute(
        'CREATE TABLE IF NOT EXISTS harness_temporal_schema (part TEXT NOT NULL, version INTEGER NOT NULL,'
        ' checksum BLOB NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (part, version))'
    )
    statement = ''
    # Not `executescript`: it commits the open transaction.
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            cursor.execute(statement)
            statement = ''
    cursor.execute(
        'INSERT INTO harness_temporal_schema (part, version, checksum, applied_at) VALUES (?, ?, ?, ?)',
        (schema.part, version, _checksum(script), time.time_ns() // 1000),
    )


def _pending(cursor: sqlite3.Cursor, schema: Schema) -> list[int]:
    """Return the versions that the database lacks, after checking those it has."""
    known = _migrations(schema.part.partition(':')[0])
    applied: dict[int, bytes] = {}
    if cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'harness_temporal_schema'").fetchone():
        query = 'SELECT version, checksum FROM harness_temporal_schema WHERE part = ?'
        applied = dict(cursor.execute(query, [schema.part]))
    for version, checksum in applied.items():
        name = f'version {version} of {schema.part!r}'
        if version not in known:
            raise StoreSchemaError(
                DATABASE, f'the schema has {name}, which a newer release made; upgrade `harness-temporal`.'
            )
        if checksum != _checksum(schema.script(version)):
            raise StoreSchemaError(DATABASE, f'the migration to {name} is not the one that made this database.')
    return [version for version in known if version not in applied]


@cache
def _migrations(part: str) -> dict[int, str]:
    """Return the scripts by version, in order."""
    folder = resources.files('harness_temporal.databases') / 'sqlite_schema' / part
    scripts = {int(file.name[:4]): file.read_text('utf-8') for file in folder.iterdir() if file.name.endswith('.sql')}
    return dict(sorted(scripts.items()))


def _checksum(script: str) -> bytes:
    return hashlib.sha256(script.encode()).digest()
