"""Durable Pydantic AI agents on Temporal.

`StepPersistence` keeps an agent's runs in a store; `HarnessDurability` and `HarnessPlugin` run it in Temporal workflows
with the writes inside the activities that run anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_temporal.lazy import lazy_exports

if TYPE_CHECKING:
    from harness_temporal.errors import HarnessError
    from harness_temporal.memory import Memory
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
    from harness_temporal.temporal import (
        AgentRunInput,
        AgentRunOutput,
        HarnessClient,
        HarnessDurability,
        HarnessPlugin,
        run_agent,
    )
    from harness_temporal.tools import recovery_retryable

__all__ = [
    'AgentExecutable',
    'AgentRunInput',
    'AgentRunOutput',
    'DeferredToolResume',
    'HarnessClient',
    'HarnessContext',
    'HarnessDurability',
    'HarnessError',
    'HarnessPlugin',
    'HarnessState',
    'Memory',
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


# The command line, and whoever needs one part only, need not wait for all of them.
__getattr__ = lazy_exports(
    __name__,
    {
        'AgentExecutable': 'harness_temporal.state',
        'AgentRunInput': 'harness_temporal.temporal',
        'AgentRunOutput': 'harness_temporal.temporal',
        'DeferredToolResume': 'harness_temporal.state',
        'HarnessClient': 'harness_temporal.temporal',
        'HarnessContext': 'harness_temporal.state',
        'HarnessDurability': 'harness_temporal.temporal',
        'HarnessError': 'harness_temporal.errors',
        'HarnessPlugin': 'harness_temporal.temporal',
        'HarnessState': 'harness_temporal.state',
        'Memory': 'harness_temporal.memory',
        'PortableState': 'harness_temporal.state',
        'RunBindings': 'harness_temporal.state',
        'StepPersistence': 'harness_temporal.step_persistence',
        'annotate_tool_effect': 'harness_temporal.step_persistence',
        'continue_run': 'harness_temporal.step_persistence',
        'fork_run': 'harness_temporal.step_persistence',
        'inspect_recovery': 'harness_temporal.step_persistence',
        'recovery_retryable': 'harness_temporal.tools',
        'run_agent': 'harness_temporal.temporal',
        'tool_idempotency_key': 'harness_temporal.step_persistence',
    },
)
