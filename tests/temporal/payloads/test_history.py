"""How much of a run is in Temporal's history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.temporal.payloads.workers import Setup

pytestmark = pytest.mark.temporal

STEPS = 36
"""Pydantic AI stops a run at 50 requests by default."""


async def history_bytes(setup: Setup, steps: int, name: str) -> int:
    async with setup.working():
        run = await setup.start('page ' * steps, f'{name}-{steps}')
        await run.result()
    return (await run.describe()).raw_info.history_size_bytes


async def test_a_history_grows_with_the_steps_and_less_with_storage(setup: Setup) -> None:
    alone = replace(setup, stored=False)
    long = await history_bytes(alone, STEPS, 'alone')
    # A request crosses with what is new: three times the steps are three times the bytes, not nine times.
    assert long / await history_bytes(alone, STEPS // 3, 'alone') <= 3.1
    assert await history_bytes(setup, STEPS, 'stored') / long <= 0.2
