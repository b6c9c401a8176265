"""The peer's store in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, cast

from harness_temporal.errors import ConfigurationError, RunImportError, StoreError, StoreUnavailableError
from harness_temporal.importers.messages import referenced, references, split_history
from harness_temporal.importers.source import Fields, SnapshotRow
from harness_temporal.lazy import needed_by

_SOURCE = 'the source database'
_PREFIX = re.compile('[a-z_][a-z0-9_]{0,39}')

# The ledger has no number, and its times are text that the peer writes in UTC, so that it sorts as they do.
_EFFECTS = 'SELECT * FROM {}_tool_effects WHERE run_id = $1 ORDER BY started_at, tool_call_id'
_RUN_IDS = """
WITH kept AS (
  SELECT run_id FROM {0}_runs UNION SELECT run_id FROM {0}_events UNION SELECT run_id FROM {0}_snapshots
  UNION SELECT run_id FROM {0}_tool_effects
)
SELECT run_id FROM kept LEFT JOIN {0}_runs AS runs USING (run_id) ORDER BY runs.started_at, run_id
"""


class _Connection(Protocol):
    """What is used of asyncpg, which is half typed."""

    async def fetch(self, query: str, *arguments: object) -> Sequence[Fields]: ...

    async def close(self) -> None: ...


class PostgresSource:
    """Reads the tables that the peer's `PostgresStepStore` wrote (it has one since 0.62 or shortly before).

    Args:
        dsn: Where the database is.
        prefix: What the names of the tables begin with: the `table` that the store was made with.
    """

    def __init__(self, dsn: str, *, prefix: str = 'step_persistence') -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(f'{prefix!r} is no prefix that tables of the source could have.')
        self._dsn = dsn
        self._prefix = prefix
        self._connection: _Connection | None = None

    async def run_ids(self) -> Sequence[str]:
        if not await self._has_table('runs'):
            raise ConfigurationError(
                f'There is no table {self._prefix}_runs. If the store was made with another `table`, add '
                '`?table=NAME` to the URL.'
            )
        return [cast(str, row['run_id']) for row in await self._fetch(_RUN_IDS)]

    async def run(self, run_id: str) -> Fields | None:
        rows = await self._fetch('SELECT * FROM {}_runs WHERE run_id = $1', run_id)
        return rows[0] if rows else None

    async def events(self, run_id: str) -> Sequence[Fields]:
        return await self._fetch('SELECT * FROM {}_events WHERE run_id = $1 ORDER BY seq', run_id)

    async def tool_effects(self, run_id: str) -> Sequence[Fields]:
        return await self._fetch(_EFFECTS, run_id)

    async def snapshot_numbers(self, run_id: str) -> Sequence[int]:
        rows = await self._fetch('SELECT seq FROM {}_snapshots WHERE run_id = $1 ORDER BY seq', run_id)
        return [cast(int, row['seq']) for row in rows]

    async def snapshot(self, run_id: str, number: int) -> SnapshotRow:
        rows = await self._fetch('SELECT * FROM {}_snapshots WHERE seq = $1', number)
        if not rows:
            raise RunImportError(run_id, f'snapshot {number} was removed while it was read.')
        text = str(rows[0]['messages'])
        digests = references(text, run_id=run_id)
        if digests is None:
            return SnapshotRow(rows[0], split_history(text, run_id=run_id))
        found = await self._fetch('SELECT sha256, message FROM {}_messages WHERE sha256 = ANY($1::text[])', digests)
        stored = {str(row['sha256']): str(row['message']) for row in found}
        return SnapshotRow(rows[0], referenced(digests, stored, run_id=run_id))

    async def blob(self, digest: str) -> bytes | None:
        # The table is made with the first large content.
        if not await self._has_table('media'):
            return None
        rows = await self._fetch('SELECT bytes FROM {}_media WHERE sha256 = $1', digest)
        return cast(bytes, rows[0]['bytes']) if rows else None

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _has_table(self, name: str) -> bool:
        rows = await self._fetch('SELECT to_regclass($1) IS NOT NULL AS found', f'{self._prefix}_{name}')
        return bool(rows[0]['found'])

    async def _fetch(self, query: str, *arguments: object) -> Sequence[Fields]:
        async with self._connected() as connection:
            rows = await connection.fetch(query.format(self._prefix), *arguments)
        return [dict(row.items()) for row in rows]

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[_Connection]:
        with needed_by('Reading PostgreSQL', 'asyncpg', 'postgres'):
            import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none
        try:
            if self._connection is None:
                settings = {'default_transaction_read_only': 'on'}
                self._connection = cast(
                    _Connection,
                    await asyncpg.connect(self._dsn, server_settings=settings),  # pyright: ignore[reportUnknownMemberType]
                )
            yield self._connection
        except (OSError, TimeoutError, asyncpg.PostgresConnectionError) as error:
            raise StoreUnavailableError(_SOURCE, f'it cannot be reached: {error}') from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            raise StoreError(_SOURCE, str(error)) from error
