"""What stops the demo."""

from __future__ import annotations

from harness_temporal.errors import HarnessError


class DemoError(HarnessError):
    """The demo cannot go on; the message says why and, where it is known, what to do."""
