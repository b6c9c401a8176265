"""Agents in Temporal workflows, with the boundaries inside their activities."""

from __future__ import annotations

from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, run_agent
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.client import HarnessClient
from harness_temporal.temporal.continuation import HistoryBudget
from harness_temporal.temporal.delegation import Delegate, Delegated, delegate, delegation_toolset
from harness_temporal.temporal.durability import HarnessDurability
from harness_temporal.temporal.maintenance import MaintenanceInput, MaintenanceOutput, run_maintenance
from harness_temporal.temporal.observing import RunFields
from harness_temporal.temporal.plugin import HarnessPlugin
from harness_temporal.temporal.run_context import HarnessRunContext
from harness_temporal.temporal.serving import serve
from harness_temporal.temporal.threads import (
    ApprovalPolicy,
    ApprovalReminder,
    HarnessThread,
    HarnessThreads,
    ThreadInput,
    ThreadOptions,
    ThreadOutput,
)

__all__ = [
    'AgentRunInput',
    'AgentRunOutput',
    'ApprovalPolicy',
    'ApprovalReminder',
    'CarriedState',
    'Delegate',
    'Delegated',
    'HarnessClient',
    'HarnessDurability',
    'HarnessPlugin',
    'HarnessRunContext',
    'HarnessThread',
    'HarnessThreads',
    'HistoryBudget',
    'MaintenanceInput',
    'MaintenanceOutput',
    'RunFields',
    'SnapshotReference',
    'ThreadInput',
    'ThreadOptions',
    'ThreadOutput',
    'delegate',
    'delegation_toolset',
    'run_agent',
    'run_maintenance',
    'serve',
]
