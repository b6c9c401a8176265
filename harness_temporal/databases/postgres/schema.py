"""Bringing a database to the schema of this release."""

from __future__ import annotations

import hashlib
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from harness_temporal.databases.postgres.sql import DATABASE, Migration, Row, Statements, migrations
from harness_temporal.errors import StoreSchemaError


class Connection(Protocol):
    """What is used of a connection."""

    async def fetch(self, query: str, *arguments: object) -> list[Row]: ...

    async def execute(self, query: str) -> str: ...

    def transaction(self, *, isolation: str) -> AbstractAsyncContextManager[object]: ...


async def set_up(connection: Connection, statements: Statements) -> None:
    """Make the schema and run the migrations that it lacks, all of them or none.

    Safe when many processes do it at once: the first one works, the others wait for it. With nothing to do it only
    reads, and needs no right to change the schema.

    Raises:
        StoreSchemaError: A migration was edited, or a newer release was here.
    """
    if not await _pending(connection, statements):
        return
    # Whoever waited for the lock has to see what its holder did, whatever isolation the pool's connections have.
    async with connection.transaction(isolation='read_committed'):
        await connection.fetch(statements.queries['lock_schema'], _lock_key(statements))
        # Even with IF NOT EXISTS, making a schema that exists takes a right that the role may not have.
        if not await _is_there(connection, statements, 'created'):
            await connection.execute(statements.queries['create_schema'])
        for migration in await _pending(connection, statements):
            await connection.execute(statements.bind(migration.script))
            recorded = (migration.version, migration.name, migration.checksum)
            await connection.fetch(statements.queries['record_version'], *recorded)


async def _pending(connection: Connection, statements: Statements) -> tuple[Migration, ...]:
    """Return the migrations that the schema lacks, after checking those that it has."""
    if not await _is_there(connection, statements, 'used'):
        return migrations()
    applied = await connection.fetch(statements.queries['applied_versions'])
    known = {migration.version: migration for migration in migrations()}
    for row in applied:
        name = f'migration {row["version"]} ({row["name"]})'
        if row['version'] not in known:
            raise StoreSchemaError(DATABASE, f'{name} was made by a newer release; upgrade `harness-temporal`.')
        if row['checksum'] != known[row['version']].checksum:
            raise StoreSchemaError(DATABASE, f'{name} did not make this schema; released ones never change.')
    return tuple(
        migration for version, migration in known.items() if version not in {row['version'] for row in applied}
    )


async def _is_there(connection: Connection, statements: Statements, what: str) -> bool:
    [row] = await connection.fetch(statements.queries['has_schema'], statements.schema)
    return row[what]


def _lock_key(statements: Statements) -> int:
    digest = hashlib.sha256(f'harness_temporal {statements.schema}'.encode()).digest()
    return int.from_bytes(digest[:8], 'big', signed=True)
