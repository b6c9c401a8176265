"""Runs without a durable engine."""

from __future__ import annotations

import pytest

from harness_temporal.step_persistence import InMemoryStepStore


@pytest.fixture
def store() -> InMemoryStepStore:
    return InMemoryStepStore()
