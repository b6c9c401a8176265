"""Blobs as rows of a SQLite database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness_temporal.databases.sqlite import Schema, SqliteDatabase
from harness_temporal.errors import ConfigurationError
from harness_temporal.media.blob import CHUNK, Blob, StoredBlob
from harness_temporal.media.context import NO_CONTEXT, MediaContext, PublicUrlResolver
from harness_temporal.media.metadata import dump_metadata, load_metadata
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import digest_of
from harness_temporal.records import from_microseconds, to_microseconds, utc_now
from harness_temporal.text import escape

_TABLE = re.compile(r'[A-Za-z_][A-Za-z0-9_]{0,62}')
_PAGE = 500
"""Rows that are listed at a time."""


class SqliteMediaStore(BaseMediaStore):
    """Keeps each blob in a row. SQLite takes blobs of up to a billion bytes.

    A file may be shared by many processes, and by a `SqliteStepStore` and other stores. For what is said of threads,
    a given connection and `':memory:'`, see `SqliteStepStore`.

    Args:
        database: The file, or `':memory:'`, or the open database of another store, which stays open.
        connection: An open connection instead, made with `check_same_thread=False`.
        table: The name of the table.
        public_url: Gives the URL from which a model may fetch a blob.
    """

    def __init__(
        self,
        database: str | Path | SqliteDatabase | None = None,
        *,
        connection: sqlite3.Connection | None = None,
        table: str = 'media',
        public_url: PublicUrlResolver | None = None,
    ) -> None:
        super().__init__(public_url=public_url)
        if not _TABLE.fullmatch(table):
            raise ConfigurationError(
                f'`table` must be 1 to 63 letters, digits and underscores, not a digit first, got {table!r}.'
            )
        self._database = SqliteDatabase.of(database, connection)
        self._is_shared = self._database is database
        self._database.add_schema(Schema(f'media:{table}', table))
        self._table = table

    async def aclose(self) -> None:
        """Close the store, and its connection unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._database.aclose()

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        return bool(await self._select('1', 'digest = ?', bytes.fromhex(digest_of(uri))))

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        digest = digest_of(uri)
        rows = await self._select('metadata', 'digest = ?', bytes.fromhex(digest))
        if not rows:
            raise self._not_found(digest)
        return load_metadata(rows[0][0], uri)

    async def blobs(self) -> AsyncGenerator[StoredBlob]:
        columns, page, last = 'digest, length(data), touched_at', f'digest > ? ORDER BY digest LIMIT {_PAGE}', b''
        while rows := await self._select(columns, page, last):
            for digest, size, touched_at in rows:
                yield StoredBlob(digest.hex(), size, from_microseconds(touched_at))
            last = rows[-1][0]

    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        count = 0

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            nonlocal count
            statement = f'DELETE FROM "{self._table}" WHERE digest = ? AND touched_at < ?'
            count = cursor.execute(statement, (bytes.fromhex(digest), to_microseconds(untouched_since))).rowcount

        await self._database.write(work, durable=False)
        return bool(count)

    async def _write(self, blob: Blob, context: MediaContext) -> None:
        # In a shared database what refers to the blob is in the same file, which keeps the order of writes.
        await self._database.write(
            lambda cursor, encoding: self._insert(cursor, blob, context), durable=not self._is_shared
        )

    async def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        rows = await self._select('rowid, length(data)', 'digest = ?', bytes.fromhex(digest))
        if not rows:
            raise self._not_found(digest)
        number, size = rows[0]
        for start in range(0, size, CHUNK):
            piece = await self._database.read(lambda cursor, encoding, start=start: self._piece(cursor, number, start))
            if piece is None:
                raise self._not_found(digest)
            yield piece

    def _insert(self, cursor: sqlite3.Cursor, blob: Blob, context: MediaContext) -> None:
        digest, now = bytes.fromhex(blob.digest), to_microseconds(utc_now())
        if cursor.execute(f'UPDATE "{self._table}" SET touched_at = ? WHERE digest = ?', (now, digest)).rowcount:
            return
        cursor.execute(
            f'INSERT INTO "{self._table}" (digest, data, media_type, metadata, touched_at)'
            ' VALUES (?, zeroblob(?), ?, ?, ?)',
            (
                digest,
                blob.size,
                None if context.media_type is None else escape(context.media_type),
                dump_metadata(context.metadata),
                now,
            ),
        )
        # Piece by piece into the space that was made: no value is ever whole in memory.
        with cursor.connection.blobopen(self._table, 'data', cursor.lastrowid or 0) as data:
            for chunk in blob.chunks():
                data.write(chunk)

    def _piece(self, cursor: sqlite3.Cursor, number: int, start: int) -> bytes | None:
        if not cursor.execute(f'SELECT 1 FROM "{self._table}" WHERE rowid = ?', (number,)).fetchone():
            return None
        with cursor.connection.blobopen(self._table, 'data', number, readonly=True) as data:
            data.seek(start)
            return data.read(CHUNK)

    async def _select(self, columns: str, condition: str, *parameters: object) -> list[Any]:
        def work(cursor: sqlite3.Cursor, encoding: str) -> list[Any]:
            return cursor.execute(f'SELECT {columns} FROM "{self._table}" WHERE {condition}', parameters).fetchall()

        return await self._database.read(work)
