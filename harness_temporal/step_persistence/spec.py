"""Make a store from a serialized spec (step-persistence seed, `from_spec`)."""

from __future__ import annotations

from harness_temporal.errors import ConfigurationError
from harness_temporal.stores.file import FileStepStore
from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.stores.protocol import StepStore
from harness_temporal.stores.sqlite import SqliteStepStore


def store_from_spec(
    backend: str, *, database: str | None, directory: str | None, max_snapshots_per_run: int | None
) -> StepStore:
    """Return the store that a spec names: `memory`, `file` with a `directory`, or `sqlite` with a `database`.

    Raises:
        ConfigurationError: The backend is unknown (falling back to memory would turn a typing error into lost runs), or
            `database` or `directory` does not go with it.
    """
    if database is not None and backend in ('memory', 'file'):
        raise ConfigurationError(f"`database` goes with `backend='sqlite'`; the {backend} store has none.")
    if directory is not None and backend in ('memory', 'sqlite'):
        raise ConfigurationError(f"`directory` goes with `backend='file'`; the {backend} store has none.")
    if backend == 'memory':
        return InMemoryStepStore(max_snapshots_per_run=max_snapshots_per_run)
    if backend == 'file':
        if directory is None:
            raise ConfigurationError("`backend='file'` needs `directory`, the path of the store's folder.")
        return FileStepStore(directory, max_snapshots_per_run=max_snapshots_per_run)
    if backend == 'sqlite':
        if database is None:
            raise ConfigurationError("`backend='sqlite'` needs `database`, the path of the database file.")
        return SqliteStepStore(database=database, max_snapshots_per_run=max_snapshots_per_run)
    raise ConfigurationError(
        f"Unknown step store backend {backend!r}: a spec can name 'memory', 'file' or 'sqlite'. "
        'Other stores are built in code and passed as `store=`.'
    )
