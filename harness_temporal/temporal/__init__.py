"""Agents in Temporal workflows, with the boundaries inside their activities."""

from __future__ import annotations

from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, SnapshotReference, run_agent
from harness_temporal.temporal.durability import HarnessDurability
from harness_temporal.temporal.maintenance import MaintenanceInput, MaintenanceOutput, run_maintenance
from harness_temporal.temporal.plugin import HarnessPlugin
from harness_temporal.temporal.run_context import HarnessRunContext
from harness_temporal.temporal.serving import serve

__all__ = [
    'AgentRunInput',
    'AgentRunOutput',
    'HarnessDurability',
    'HarnessPlugin',
    'HarnessRunContext',
    'MaintenanceInput',
    'MaintenanceOutput',
    'SnapshotReference',
    'run_agent',
    'run_maintenance',
    'serve',
]
