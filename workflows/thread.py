"""One workflow per thread. The library has it, since every worker of the command line runs it too."""

from __future__ import annotations

from harness_temporal.temporal.threads.workflow import ThreadWorkflow

__all__ = ['ThreadWorkflow']
