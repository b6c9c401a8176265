from __future__ import annotations

from tests.temporal.conftest import client, task_queue, temporal_server  # noqa: F401
