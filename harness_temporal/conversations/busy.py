"""Who works on a conversation: a process of this machine, or the holder of a lease."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import datetime, timedelta

from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.errors import ConversationConflict
from harness_temporal.records import utc_now


def ensure_inactive(summary: ConversationSummary) -> None:
    """Check that nobody works on a conversation, before going on with it.

    In a store of one machine it is busy while the process that saved it as `running` lives; a process that got the same
    number later counts as that one. In a shared store it is busy until its lease ends.

    Raises:
        ConversationConflict: Somebody does.
    """
    if is_busy(summary, utc_now()):
        who = 'a lease' if summary.owner_pid is None else f'process {summary.owner_pid}'
        raise ConversationConflict(summary.id, f'is busy: it is held by {who}.')


def is_busy(summary: ConversationSummary, now: datetime) -> bool:
    """Whether somebody works on a conversation."""
    if summary.outcome != 'running':
        return False
    if summary.busy_until is not None:
        return now < summary.busy_until
    return summary.owner_pid is not None and _is_alive(summary.owner_pid)


def marked(summary: ConversationSummary, now: datetime, lease: timedelta | None) -> ConversationSummary:
    """Return a summary with the mark that its outcome asks for. Without a lease, the mark is the process."""
    if summary.outcome != 'running':
        return replace(summary, owner_pid=None, busy_until=None)
    if lease is not None:
        return replace(summary, owner_pid=None, busy_until=now + lease)
    return replace(summary, owner_pid=summary.owner_pid or os.getpid(), busy_until=None)


if sys.platform == 'win32':

    def _is_alive(pid: int) -> bool:
        # `os.kill` would end the process, whatever the signal.
        import ctypes

        synchronize, access_denied, timed_out = 0x0010_0000, 5, 0x102
        kernel = ctypes.WinDLL('kernel32', use_last_error=True)
        kernel.OpenProcess.restype = ctypes.c_void_p
        handle = kernel.OpenProcess(synchronize, False, pid)
        if not handle:
            return ctypes.get_last_error() == access_denied
        try:
            return kernel.WaitForSingleObject(ctypes.c_void_p(handle), 0) == timed_out
        finally:
            kernel.CloseHandle(ctypes.c_void_p(handle))

else:

    def _is_alive(pid: int) -> bool:
        try:
            # No signal, only the check whether one could be sent.
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
