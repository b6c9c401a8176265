"""Notebooks that agents keep between runs. Each backend's driver is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.lazy import lazy_exports
from harness_temporal.memory.capability import Memory
from harness_temporal.memory.file import FileMemoryStore
from harness_temporal.memory.in_memory import InMemoryMemoryStore
from harness_temporal.memory.notes import MAIN, Append, Delete, Edit, Glance, Note, Notebook, Replace
from harness_temporal.memory.protocol import MemoryStore
from harness_temporal.memory.search import Ranker
from harness_temporal.memory.sqlite import SqliteMemoryStore

if TYPE_CHECKING:
    from harness_temporal.memory.mongo import MongoMemoryStore as MongoMemoryStore
    from harness_temporal.memory.postgres import PostgresMemoryStore as PostgresMemoryStore

# Names that need an extra are importable but not in `__all__`: `import *` works without it.
__all__ = [
    'MAIN',
    'Append',
    'Delete',
    'Edit',
    'FileMemoryStore',
    'Glance',
    'InMemoryMemoryStore',
    'Memory',
    'MemoryStore',
    'Note',
    'Notebook',
    'Ranker',
    'Replace',
    'SqliteMemoryStore',
]


__getattr__ = lazy_exports(
    __name__,
    {
        'MongoMemoryStore': 'harness_temporal.memory.mongo',
        'PostgresMemoryStore': 'harness_temporal.memory.postgres',
    },
)
