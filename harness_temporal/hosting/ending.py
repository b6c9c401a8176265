"""How a process that used Temporal's client ends."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn


def end_process(status: int) -> NoReturn:
    """End the process with that status, and everything written.

    Temporal's native threads sometimes abort an interpreter that is torn down under them (sdk-python issue 300), and a
    good run would end with the status of a crash. What has to be closed has to be closed before.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
