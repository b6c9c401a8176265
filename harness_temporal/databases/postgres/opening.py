"""How the stores open their connections, or share those of another store. Can be imported without the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harness_temporal.databases.postgres.sql import Statements
from harness_temporal.errors import ConfigurationError
from harness_temporal.lazy import needed_by

if TYPE_CHECKING:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it ships none

    from harness_temporal.databases.postgres.connections import Connections

DEFAULT_SCHEMA: Final = 'harness_temporal'


def open_connections(
    dsn: str | Connections | None,
    pool: asyncpg.Pool | None,
    *,
    schema: str,
    max_pool_size: int,
    acquire_timeout: float,
    store: str,
    package: str,
) -> tuple[Connections, Mapping[str, str]]:
    """Return a store's connections, which are `dsn` if that is another store's, and the queries of its package.

    Raises:
        ConfigurationError: asyncpg is not installed, or the settings do not go together.
    """
    with needed_by(f'`{store}`', 'asyncpg', 'postgres'):
        from harness_temporal.databases.postgres.connections import Connections
    if isinstance(dsn, Connections):
        if pool is not None or schema not in (DEFAULT_SCHEMA, dsn.schema):
            raise ConfigurationError('Connections of another store bring a `pool` and a `schema` of their own.')
        return dsn, Statements(dsn.schema, package).queries
    statements = Statements(schema, package)
    connections = Connections(dsn, pool, statements, max_pool_size=max_pool_size, acquire_timeout=acquire_timeout)
    return connections, statements.queries
