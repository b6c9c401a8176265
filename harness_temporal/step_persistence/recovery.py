"""See what a run left behind before deciding how to go on (step-persistence seed, "Earlier checkpoints")."""

from __future__ import annotations

from dataclasses import dataclass

from harness_temporal.records import ContinuableSnapshot, ToolEffectRecord
from harness_temporal.stores.protocol import StepStore


@dataclass(frozen=True)
class RecoveryInspection:
    """What is known of a run. It says nothing about whether repeating an effect is safe."""

    latest: ContinuableSnapshot | None
    """The newest snapshot, whatever its state."""
    settled: ContinuableSnapshot | None
    """The newest complete snapshot."""
    unresolved: tuple[ToolEffectRecord, ...]
    """Calls that may or may not have had their effect."""
    completed_tools: tuple[str, ...]
    """Names of the tools with a recorded return, in order, each once."""
    failed_tools: tuple[str, ...]
    """Names of the tools with a recorded failure, in order, each once."""


async def inspect_recovery(*, store: StepStore, run_id: str) -> RecoveryInspection:
    """Gather what the store knows of a run."""
    effects = await store.list_tool_effects(run_id=run_id)
    return RecoveryInspection(
        latest=await store.latest_snapshot(run_id=run_id, include_interrupted=True),
        settled=await store.latest_snapshot(run_id=run_id),
        unresolved=tuple(effect for effect in effects if effect.status == 'started'),
        completed_tools=tuple(dict.fromkeys(effect.tool_name for effect in effects if effect.status == 'completed')),
        failed_tools=tuple(dict.fromkeys(effect.tool_name for effect in effects if effect.status == 'failed')),
    )
