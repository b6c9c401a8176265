"""Notebooks in a SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from harness_temporal.databases.sqlite import Schema, SqliteDatabase
from harness_temporal.memory.notes import (
    OPERATIONS_KEPT,
    Edit,
    Glance,
    Note,
    Notebook,
    edited,
    revision_of,
)
from harness_temporal.memory.protocol import PAGE, MemoryStore

_NOTEBOOK: Final = 'SELECT id FROM memory_notebooks WHERE agent = ? AND namespace = ?'
# Names go through bytes: what a given connection makes of text is its application's matter.
GLANCE: Final = f"""
SELECT CAST(name AS BLOB), substr(text, 1, ?) FROM memory_notes
WHERE notebook_id = ({_NOTEBOOK}) AND name = ?
UNION ALL
SELECT * FROM (
  SELECT CAST(name AS BLOB), NULL FROM memory_notes
  WHERE notebook_id = ({_NOTEBOOK}) AND name <> ?
  ORDER BY name LIMIT ?
)
"""
"""At most one text and so many names, all found by the primary key."""


class SqliteMemoryStore(MemoryStore):
    """Keeps notes as rows. Many processes may share the file, also with a `SqliteStepStore` and other stores.

    For what is said of threads, a given connection and `':memory:'`, see `SqliteStepStore`.

    Args:
        database: The file, or `':memory:'`, or the open database of another store, which stays open.
        connection: An open connection instead, made with `check_same_thread=False`.
    """

    def __init__(
        self, database: str | Path | SqliteDatabase | None = None, *, connection: sqlite3.Connection | None = None
    ) -> None:
        self._database = SqliteDatabase.of(database, connection)
        self._is_shared = self._database is database
        self._database.add_schema(Schema('memory'))

    async def aclose(self) -> None:
        """Close the store, and its connection unless it was given. A closed store cannot be used again."""
        if not self._is_shared:
            await self._database.aclose()

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        place = notebook.agent, notebook.namespace, name
        rows, encoding = await self._select(GLANCE, max_bytes + 1, *place, *place, max_names + 1)
        data = next((text for _, text in rows if text is not None), None)
        others = [note.decode(encoding) for note, text in rows if text is None]
        return Glance.of(data, others, max_bytes=max_bytes, max_names=max_names)

    async def _read(self, notebook: Notebook, name: str) -> str | None:
        query = f'SELECT text FROM memory_notes WHERE notebook_id = ({_NOTEBOOK}) AND name = ?'
        rows, _ = await self._select(query, notebook.agent, notebook.namespace, name)
        return rows[0][0].decode() if rows else None

    async def pages(self, notebook: Notebook) -> AsyncGenerator[list[Note]]:
        query = (
            'SELECT CAST(name AS BLOB), text FROM memory_notes'
            f' WHERE notebook_id = ({_NOTEBOOK}) AND name > ? ORDER BY name LIMIT {PAGE}'
        )
        last = ''
        while True:
            rows, encoding = await self._select(query, notebook.agent, notebook.namespace, last)
            if not rows:
                return
            notes = [Note(name.decode(encoding), text.decode()) for name, text in rows]
            yield notes
            last = notes[-1].name

    async def forget(self, notebook: Notebook) -> None:
        place = notebook.agent, notebook.namespace

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            for table in ('memory_notes', 'memory_operations'):
                cursor.execute(f'DELETE FROM {table} WHERE notebook_id = ({_NOTEBOOK})', place)
            cursor.execute('DELETE FROM memory_notebooks WHERE agent = ? AND namespace = ?', place)

        await self._database.write(work, durable=True)

    async def _edit(self, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
        revision = ''

        def work(cursor: sqlite3.Cursor, encoding: str) -> None:
            nonlocal revision
            revision = _edit(cursor, encoding, notebook, name, edit, key)

        await self._database.write(work, durable=True)
        return revision

    async def _select(self, query: str, *parameters: object) -> tuple[list[Any], str]:
        return await self._database.read(
            lambda cursor, encoding: (cursor.execute(query, parameters).fetchall(), encoding)
        )


def _edit(cursor: sqlite3.Cursor, encoding: str, notebook: Notebook, name: str, edit: Edit, key: str) -> str:
    place = notebook.agent, notebook.namespace
    cursor.execute('INSERT OR IGNORE INTO memory_notebooks (agent, namespace, operations) VALUES (?, ?, 0)', place)
    query = 'SELECT id, operations FROM memory_notebooks WHERE agent = ? AND namespace = ?'
    number, operations = cursor.execute(query, place).fetchone()
    query = 'SELECT CAST(revision AS BLOB) FROM memory_operations WHERE notebook_id = ? AND key = ?'
    done = cursor.execute(query, (number, key)).fetchone()
    if done is not None:
        return done[0].decode(encoding)
    query = 'SELECT text FROM memory_notes WHERE notebook_id = ? AND name = ?'
    found = cursor.execute(query, (number, name)).fetchone()
    text = edited(name, found[0].decode() if found else None, edit)
    if text is None:
        cursor.execute('DELETE FROM memory_notes WHERE notebook_id = ? AND name = ?', (number, name))
    else:
        statement = (
            'INSERT INTO memory_notes (notebook_id, name, text) VALUES (?, ?, ?)'
            ' ON CONFLICT (notebook_id, name) DO UPDATE SET text = excluded.text'
        )
        cursor.execute(statement, (number, name, text.encode()))
    revision = revision_of(text)
    cursor.execute('UPDATE memory_notebooks SET operations = ? WHERE id = ?', (operations + 1, number))
    cursor.execute('INSERT INTO memory_operations VALUES (?, ?, ?, ?)', (number, key, operations, revision))
    statement = 'DELETE FROM memory_operations WHERE notebook_id = ? AND number <= ?'
    cursor.execute(statement, (number, operations - OPERATIONS_KEPT))
    return revision
