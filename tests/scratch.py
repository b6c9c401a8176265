"""Where the tests and their servers keep files: in memory, where the machine has that, instead of on a disk.

A test that kills a process proves the same there: what a process wrote stays with the system when it dies. That a store
flushes is proven by the calls that it makes, never by the time that a disk takes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path('/dev/shm')
_ROOM = 4 << 30
"""Bytes that have to be free; a container often has 64 MiB."""


def keep_files_in_memory() -> None:
    """Make it the place of temporary files, also for other processes, unless `TMPDIR` says where they go."""
    if 'TMPDIR' in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(_MEMORY).free >= _ROOM:
        os.environ['TMPDIR'] = str(_MEMORY)
        tempfile.tempdir = None
