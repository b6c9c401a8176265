"""Places for stores that are new, and places that are as good as new but cost less.

To make a schema of PostgreSQL takes longer than most rules. So each rule gets a new one for its first case, and for its
further cases one that is used again and again and is empty each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from tests.conformance.opening import drop_schema


def is_further_case(test: pytest.Item) -> bool:
    """Return whether a parametrized test has had its first case before. The same in every process."""
    case = getattr(test, 'callspec', None)
    return case is not None and any(case.indices.values())


@asynccontextmanager
async def new_schema(dsn: str) -> AsyncIterator[str]:
    """Yield the name of a schema that is not there, and drop it afterwards."""
    schema = _name()
    yield schema
    await drop_schema(dsn, schema)


@dataclass
class UsedSchema:
    """A schema that one test after the other takes."""

    dsn: str
    _made: list[str] = field(default_factory=list[str])
    _free: str | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[str]:
        """Yield the name of a schema that has no rows. What could not be emptied is not used again."""
        schema, self._free = self._free or self._new(), None
        yield schema
        await _empty_schema(self.dsn, schema)
        self._free = schema

    def _new(self) -> str:
        self._made.append(_name())
        return self._made[-1]

    async def drop(self) -> None:
        """Drop every schema that was used."""
        for schema in self._made:
            await drop_schema(self.dsn, schema)


@contextmanager
def used_schema(dsn: str) -> Iterator[UsedSchema]:
    """Yield a schema to take, and drop it afterwards."""
    used = UsedSchema(dsn)
    yield used
    asyncio.run(used.drop())


def _name() -> str:
    return f'conformance_{uuid4().hex}'


async def _empty_schema(dsn: str, schema: str) -> None:
    """Delete the rows of a schema, except which migrations it has. Fails if a store left a transaction open."""
    import asyncpg

    connection = await asyncpg.connect(dsn, server_settings={'search_path': schema, 'lock_timeout': '5s'})
    try:
        found = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'schema_versions'", schema
        )
        if not found:
            return
        tables = [row['tablename'] for row in found]
        async with connection.transaction():
            # Nobody else may use them, not even to read; see `drop_schema`, which waits for the same.
            await connection.execute(f'LOCK TABLE {", ".join(tables)} IN ACCESS EXCLUSIVE MODE')
            # One statement, at whose end nothing refers to anything any more.
            deletes = ', '.join(f'deleted_{table} AS (DELETE FROM {table})' for table in tables)
            await connection.execute(f'WITH {deletes} SELECT')
    finally:
        await connection.close()
