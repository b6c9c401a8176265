"""Step stores. Each backend's driver is imported only when the backend is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.lazy import lazy_exports
from harness_temporal.stores.file import FileStepStore
from harness_temporal.stores.maintenance import StoreMaintenance
from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.stores.protocol import BaseStepStore, PreparedBatch, SnapshotRow, StepStore
from harness_temporal.stores.sqlite import SqliteStepStore

if TYPE_CHECKING:
    from harness_temporal.stores.mongo import MongoStepStore as MongoStepStore
    from harness_temporal.stores.postgres import PostgresStepStore as PostgresStepStore

# Names that need an extra are importable but not in `__all__`: `import *` works without it.
__all__ = [
    'BaseStepStore',
    'FileStepStore',
    'InMemoryStepStore',
    'PreparedBatch',
    'SnapshotRow',
    'SqliteStepStore',
    'StepStore',
    'StoreMaintenance',
]


__getattr__ = lazy_exports(
    __name__,
    {
        'MongoStepStore': 'harness_temporal.stores.mongo',
        'PostgresStepStore': 'harness_temporal.stores.postgres',
    },
)
