"""Portable state: continue an agent's thread in another run or process (state-and-resume seed)."""

from __future__ import annotations

from harness_temporal.state.capability_state import CapabilityState, StateWrite
from harness_temporal.state.context import HarnessContext, PortableState
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.environments import EnvironmentSource
from harness_temporal.state.executable import AgentExecutable, RunBindings
from harness_temporal.state.namespaces import AgentContextState, CapabilityEntry, ContentReference, EnvironmentState
from harness_temporal.state.results import RunFailure, RunResult, RunStatus
from harness_temporal.state.stream import RunStream

__all__ = [
    'AgentContextState',
    'AgentExecutable',
    'CapabilityEntry',
    'CapabilityState',
    'ContentReference',
    'DeferredToolResume',
    'EnvironmentSource',
    'EnvironmentState',
    'HarnessContext',
    'HarnessState',
    'PortableState',
    'RunBindings',
    'RunFailure',
    'RunResult',
    'RunStatus',
    'RunStream',
    'StateWrite',
]
