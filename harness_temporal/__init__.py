"""Durable Pydantic AI agents on Temporal.

`StepPersistence` keeps an agent's runs in a store; `HarnessDurability` and `HarnessPlugin` run it in Temporal workflows
with the writes inside the activities that run anyway.
"""

from __future__ import annotations

from harness_temporal.errors import HarnessError
from harness_temporal.state import (
    AgentExecutable,
    DeferredToolResume,
    HarnessContext,
    HarnessState,
    PortableState,
    RunBindings,
)
from harness_temporal.step_persistence import (
    StepPersistence,
    annotate_tool_effect,
    continue_run,
    fork_run,
    inspect_recovery,
    tool_idempotency_key,
)
from harness_temporal.temporal import AgentRunInput, AgentRunOutput, HarnessDurability, HarnessPlugin, run_agent
from harness_temporal.tools import recovery_retryable

__all__ = [
    'AgentExecutable',
    'AgentRunInput',
    'AgentRunOutput',
    'DeferredToolResume',
    'HarnessContext',
    'HarnessDurability',
    'HarnessError',
    'HarnessPlugin',
    'HarnessState',
    'PortableState',
    'RunBindings',
    'StepPersistence',
    'annotate_tool_effect',
    'continue_run',
    'fork_run',
    'inspect_recovery',
    'recovery_retryable',
    'run_agent',
    'tool_idempotency_key',
]
