"""What a store takes, as its backend tells it: as the run left it, and with everything gone that is not content."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Size:
    left: int
    """What is taken: blocks of a file system, a write-ahead log, the space between rows."""
    compact: int
    """The same after a checkpoint and `VACUUM`, or the bytes of files or documents and indexes alone."""


def of_folder(address: str, name: str) -> Size:
    found = [path.stat() for path in Path(address, name).rglob('*') if path.is_file()]
    return Size(left=512 * sum(file.st_blocks for file in found), compact=sum(file.st_size for file in found))


def of_sqlite(address: str, name: str) -> Size:
    files = [path for path in Path(address).glob(f'{name}.db*') if path.is_file()]
    left = sum(path.stat().st_size for path in files)
    path = Path(address, f'{name}.db')
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute('VACUUM')
        connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()
    return Size(left=left, compact=path.stat().st_size)


async def of_postgres(address: str, name: str) -> Size:
    import asyncpg

    query = (
        'SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c '
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"
    )
    connection = await asyncpg.connect(address)
    try:
        left = await connection.fetchval(query, name)
        for table in await connection.fetch('SELECT tablename FROM pg_tables WHERE schemaname = $1', name):
            await connection.execute(f'VACUUM FULL {name}.{table["tablename"]}')
        return Size(left=left, compact=await connection.fetchval(query, name))
    finally:
        await connection.close()


async def of_mongo(address: str, name: str) -> Size:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient[dict[str, object]](address) as client:
        stats = await client[name].command('dbStats')
    return Size(
        left=int(stats['storageSize'] + stats['indexSize']), compact=int(stats['dataSize'] + stats['indexSize'])
    )


async def size(kind: str, address: str, name: str) -> Size | None:
    """Return what a store takes; `None` for one in memory."""
    match kind:
        case 'file':
            return of_folder(address, name)
        case 'sqlite':
            return of_sqlite(address, name)
        case 'postgres':
            return await of_postgres(address, name)
        case 'mongo':
            return await of_mongo(address, name)
        case _:
            return None
