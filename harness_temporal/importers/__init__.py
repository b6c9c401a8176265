"""Import the runs of `pydantic-ai-harness`, versions 0.36 to 0.62, into a store of this package."""

from __future__ import annotations

from harness_temporal.importers.file import FileSource
from harness_temporal.importers.importing import ImportReport, import_runs
from harness_temporal.importers.mongo import MongoSource
from harness_temporal.importers.opening import open_source
from harness_temporal.importers.postgres import PostgresSource
from harness_temporal.importers.source import Fields, RunSource, SnapshotRow
from harness_temporal.importers.sqlite import SqliteSource

__all__ = [
    'Fields',
    'FileSource',
    'ImportReport',
    'MongoSource',
    'PostgresSource',
    'RunSource',
    'SnapshotRow',
    'SqliteSource',
    'import_runs',
    'open_source',
]
