"""The collections and their indexes. All of them exist before the first transaction."""

from __future__ import annotations

from typing import Final

from pymongo import IndexModel

from harness_temporal.databases.mongo import Indexes

INDEXES: Final[Indexes] = {
    'memory_notebooks': [],
    'memory_notes': [],
    'memory_operations': [IndexModel([('notebook', 1), ('number', 1)])],
}
