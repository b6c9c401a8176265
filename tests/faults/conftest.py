from __future__ import annotations

from tests.temporal.conftest import client  # noqa: F401
