"""Agents in Temporal workflows, with the boundaries inside their activities."""

from __future__ import annotations

from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, run_agent
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.client import HarnessClient
from harness_temporal.temporal.continuation import HistoryBudget
from harness_temporal.temporal.durability import HarnessDurability
from harness_temporal.temporal.maintenance import MaintenanceInput, MaintenanceOutput, run_maintenance
from harness_temporal.temporal.observing import RunFields
from harness_temporal.temporal.plugin import HarnessPlugin
from harness_temporal.temporal.run_context import HarnessRunContext
from harness_temporal.temporal.serving import serve

__all__ = [
    'AgentRunInput',
    'AgentRunOutput',
    'CarriedState',
    'HarnessClient',
    'HarnessDurability',
    'HarnessPlugin',
    'HarnessRunContext',
    'HistoryBudget',
    'MaintenanceInput',
    'MaintenanceOutput',
    'RunFields',
    'SnapshotReference',
    'run_agent',
    'run_maintenance',
    'serve',
]
