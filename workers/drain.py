"""A bound on how long a worker takes to stop, also if something in it does not heed its cancellation."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

AFTER_GRACE_SECONDS: Final = 10.0
"""How long activities that were cancelled after the grace period may take to end, and the process after them."""
DRAIN_FAILED: Final = 75
"""The exit status of a worker that had to be cut off (`EX_TEMPFAIL`)."""
_logger = logging.getLogger(__name__)


class DrainLimit:
    """Ends the process if the worker has not stopped in time. What it held is taken up by another worker.

    Args:
        seconds: Time from `start` on.
        exit: Ends the process.
    """

    def __init__(self, seconds: float, exit: Callable[[int], object] = os._exit) -> None:
        # A thread, because what blocks the event loop is one of the things that keep a worker from stopping.
        self._timer = threading.Timer(seconds, self._cut_off)
        self._timer.daemon = True
        self._seconds = seconds
        self._exit = exit

    def start(self) -> None:
        """Begin to count: the worker was told to stop."""
        self._timer.start()

    def cancel(self) -> None:
        """The worker has stopped."""
        self._timer.cancel()

    def _cut_off(self) -> None:
        _logger.error('The worker has not stopped within %.0f seconds and is cut off.', self._seconds)
        logging.shutdown()
        self._exit(DRAIN_FAILED)
