"""What stores of files need of the system. Not on Windows, where the other stores work: `fcntl` is imported on use."""

from __future__ import annotations

import os
import time
from typing import Final

LOCK_SECONDS: Final = 30.0
"""How long to wait for a lock that another task or process holds."""


def put_on_disk(descriptor: int) -> None:
    """Wait until a file's content and size are on disk."""
    import fcntl

    full: int | None = getattr(fcntl, 'F_FULLFSYNC', None)  # on macOS only this empties the drive's cache
    if full is not None:
        fcntl.fcntl(descriptor, full)
    else:
        os.fdatasync(descriptor)


def take_lock(descriptor: int, *, shared: bool, seconds: float) -> None:
    """Take the lock on an open file or folder in turns of asking and waiting: a call that waits has no time limit.

    Raises:
        TimeoutError: Others held it for so long.
    """
    import fcntl

    deadline = time.monotonic() + seconds
    pause = 0.0005
    while True:
        # Not `lockf`: those locks are lost as soon as the process closes any descriptor of the file.
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise TimeoutError(f'it was locked for {seconds:g} seconds') from error
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
