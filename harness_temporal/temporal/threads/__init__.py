"""Long-lived threads: one workflow for each, that takes messages and answers them in order."""

from __future__ import annotations

from harness_temporal.temporal.threads.client import HarnessThread, HarnessThreads
from harness_temporal.temporal.threads.desk import ThreadDesk
from harness_temporal.temporal.threads.thread import Thread
from harness_temporal.temporal.threads.values import (
    THREAD_WORKFLOW,
    ApprovalPolicy,
    ApprovalReminder,
    CancelInput,
    PendingCall,
    RenameInput,
    Reply,
    ResolveInput,
    SendInput,
    StepSummary,
    ThreadInput,
    ThreadOptions,
    ThreadOutput,
    ThreadStatus,
)
from harness_temporal.temporal.threads.workflow import ThreadWorkflow

__all__ = [
    'THREAD_WORKFLOW',
    'ApprovalPolicy',
    'ApprovalReminder',
    'CancelInput',
    'HarnessThread',
    'HarnessThreads',
    'PendingCall',
    'RenameInput',
    'Reply',
    'ResolveInput',
    'SendInput',
    'StepSummary',
    'Thread',
    'ThreadDesk',
    'ThreadInput',
    'ThreadOptions',
    'ThreadOutput',
    'ThreadStatus',
    'ThreadWorkflow',
]
