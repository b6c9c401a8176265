"""One agent run per workflow. The library has it, since the worker of `harness-temporal dev` runs it too."""

from __future__ import annotations

from harness_temporal.temporal.agent_run_workflow import AgentRunWorkflow

__all__ = ['AgentRunWorkflow']
