"""The peer's store in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote

from anyio import to_thread

from harness_temporal.errors import ConfigurationError, RunImportError, StoreError, StoreUnavailableError
from harness_temporal.importers.messages import parsed, referenced, split_history
from harness_temporal.importers.source import Fields, SnapshotRow

T = TypeVar('T')
_SOURCE = 'the source database'
_TABLES = frozenset({'runs', 'events', 'snapshots', 'tool_effects'})
_OURS = 'harness_temporal_schema'

# By row id, an entry of the ledger is where its call was first recorded: later records replace its values only.
_EFFECTS = 'SELECT * FROM tool_effects WHERE run_id = ? ORDER BY rowid'
_RUN_IDS = """
WITH kept AS (
  SELECT run_id FROM runs UNION SELECT run_id FROM events UNION SELECT run_id FROM snapshots
  UNION SELECT run_id FROM tool_effects
)
SELECT run_id FROM kept LEFT JOIN runs USING (run_id) ORDER BY runs.started_at, runs.rowid, run_id
"""
_MESSAGES = """
SELECT refs.sha256, messages.message
FROM snapshot_message_refs AS refs LEFT JOIN snapshot_messages AS messages ON messages.sha256 = refs.sha256
WHERE refs.snapshot_seq = ? ORDER BY refs.position
"""


class SqliteSource:
    """Reads a database that the peer's `SqliteStepStore` wrote, without changing it or a file beside it.

    Nothing should write to it meanwhile. Where that is noticed, `StoreUnavailableError` says so.
    """

    def __init__(self, database: Path) -> None:
        self._path = database
        self._connection: sqlite3.Connection | None = None
        self._unchanged: tuple[int, int] | None = None
        """What the file was like when it was opened, where SQLite itself does not look out for writers."""

    async def run_ids(self) -> Sequence[str]:
        rows = await self._query(_RUN_IDS)
        return [cast(str, row['run_id']) for row in rows]

    async def run(self, run_id: str) -> Fields | None:
        rows = await self._of_run(run_id, 'SELECT * FROM runs WHERE run_id = ?', run_id)
        return rows[0] if rows else None

    async def events(self, run_id: str) -> Sequence[Fields]:
        return await self._of_run(run_id, 'SELECT * FROM events WHERE run_id = ? ORDER BY seq', run_id)

    async def tool_effects(self, run_id: str) -> Sequence[Fields]:
        return await self._of_run(run_id, _EFFECTS, run_id)

    async def snapshot_numbers(self, run_id: str) -> Sequence[int]:
        rows = await self._of_run(run_id, 'SELECT seq FROM snapshots WHERE run_id = ? ORDER BY seq', run_id)
        return [cast(int, row['seq']) for row in rows]

    async def snapshot(self, run_id: str, number: int) -> SnapshotRow:
        rows = await self._of_run(run_id, 'SELECT * FROM snapshots WHERE seq = ?', number)
        if not rows:
            raise RunImportError(run_id, f'snapshot {number} was removed while it was read.')
        text = str(rows[0]['messages'])
        if not text.startswith('{'):
            return SnapshotRow(rows[0], split_history(text, run_id=run_id))
        found = await self._of_run(run_id, _MESSAGES, number)
        expected = cast(Fields, parsed(text, run_id=run_id)).get('stored_messages')
        if len(found) != expected:
            raise RunImportError(run_id, f'snapshot {number} has {len(found)} of its {expected} messages.')
        stored = {str(row['sha256']): str(row['message']) for row in found if row['message'] is not None}
        return SnapshotRow(rows[0], referenced((str(row['sha256']) for row in found), stored, run_id=run_id))

    async def blob(self, digest: str) -> bytes | None:
        if not await self._query("SELECT name FROM sqlite_master WHERE name = 'media'"):
            return None
        rows = await self._query('SELECT bytes FROM media WHERE sha256 = ?', digest)
        content = rows[0]['bytes'] if rows else None
        return content if isinstance(content, bytes) else None

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _of_run(self, run_id: str, sql: str, *parameters: object) -> Sequence[Fields]:
        try:
            return await self._query(sql, *parameters)
        except (StoreUnavailableError, ConfigurationError):
            raise
        except StoreError as error:
            raise RunImportError(run_id, f'its rows cannot be read: {error}') from error

    async def _query(self, sql: str, *parameters: object) -> Sequence[Fields]:
        return await to_thread.run_sync(lambda: _translated(lambda: self._fetch(sql, parameters)))

    def _fetch(self, sql: str, parameters: Sequence[object]) -> Sequence[Fields]:
        if self._connection is None:
            self._connection = self._open()
        cursor = self._connection.execute(sql, parameters)
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        if self._unchanged is not None and self._unchanged != _state(self._path):
            raise StoreUnavailableError(
                _SOURCE, 'it was written to while it was read. Stop its writers, and try again.'
            )
        return rows

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise ConfigurationError(f'There is no database {str(self._path)!r}.')
        # Even a reader makes files beside a database that has a write-ahead log, unless it takes it as immutable. That
        # is right only where nothing is in the log and nobody writes.
        immutable = _has_log(self._path) and not Path(f'{self._path}-wal').exists()
        self._unchanged = _state(self._path) if immutable else None
        options = 'mode=ro&immutable=1' if immutable else 'mode=ro'
        path = quote(str(self._path.absolute()))
        connection = sqlite3.connect(f'file:{path}?{options}', uri=True, check_same_thread=False, isolation_level=None)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if _OURS in tables or not tables >= _TABLES:
                what = 'is a store of this package already' if _OURS in tables else 'has no step store in it'
                raise ConfigurationError(f'{str(self._path)!r} {what}.')
            on_failure.pop_all()
        return connection


def _has_log(path: Path) -> bool:
    """Whether the database is one with a write-ahead log, as its header says."""
    with path.open('rb') as file:
        return file.read(20)[18:] == b'\x02\x02'


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except sqlite3.OperationalError as error:
        busy = 'locked' in str(error)
        raise (StoreUnavailableError if busy else StoreError)(_SOURCE, str(error)) from error
    except (sqlite3.Error, OSError, UnicodeError) as error:
        raise StoreError(_SOURCE, str(error)) from error
