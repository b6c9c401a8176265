"""Step persistence: event log, continuable snapshots, tool-effect ledger, lineage (the step-persistence seed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.history import is_provider_valid
from harness_temporal.lazy import lazy_exports
from harness_temporal.records import (
    ContinuableSnapshot,
    EventKind,
    RunRecord,
    SnapshotState,
    StepEvent,
    ToolEffectRecord,
    ToolEffectStatus,
    ToolOutcome,
)
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.step_persistence.context import annotate_tool_effect, tool_idempotency_key
from harness_temporal.step_persistence.effects import UNKNOWN_OUTCOME_METADATA_KEY, OnUnknown, ToolRecovery
from harness_temporal.step_persistence.events import SnapshotSaved
from harness_temporal.step_persistence.frontier import RunFrontier, load_frontier
from harness_temporal.step_persistence.recovery import RecoveryInspection, inspect_recovery
from harness_temporal.step_persistence.resume import continue_run, fork_run
from harness_temporal.step_persistence.tree import RunTree, run_tree
from harness_temporal.stores import FileStepStore, InMemoryStepStore, SqliteStepStore, StepStore

if TYPE_CHECKING:
    from harness_temporal.stores import MongoStepStore as MongoStepStore
    from harness_temporal.stores import PostgresStepStore as PostgresStepStore

# Names that need an extra are importable but not in `__all__`: `import *` works without it.
__all__ = [
    'UNKNOWN_OUTCOME_METADATA_KEY',
    'ContinuableSnapshot',
    'EventKind',
    'FileStepStore',
    'InMemoryStepStore',
    'OnUnknown',
    'RecoveryInspection',
    'RunFrontier',
    'RunRecord',
    'RunTree',
    'SnapshotSaved',
    'SnapshotState',
    'SqliteStepStore',
    'StepEvent',
    'StepPersistence',
    'StepStore',
    'ToolEffectRecord',
    'ToolEffectStatus',
    'ToolOutcome',
    'ToolRecovery',
    'annotate_tool_effect',
    'continue_run',
    'fork_run',
    'inspect_recovery',
    'is_provider_valid',
    'load_frontier',
    'run_tree',
    'tool_idempotency_key',
]


__getattr__ = lazy_exports(
    __name__,
    {
        'MongoStepStore': 'harness_temporal.stores.mongo',
        'PostgresStepStore': 'harness_temporal.stores.postgres',
    },
)
