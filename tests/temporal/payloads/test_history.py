"""How much of a run is in Temporal's history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.temporal.payloads.workers import Setup

pytestmark = pytest.mark.temporal

STEPS = 48
"""Pydantic AI stops a run at 50 requests by default."""


async def history_bytes(setup: Setup, name: str) -> int:
    async with setup.working():
        run = await setup.start('page ' * STEPS, name)
        await run.result()
    return (await run.describe()).raw_info.history_size_bytes


async def test_the_history_of_a_run_is_a_small_part_of_what_it_is_without_storage(setup: Setup) -> None:
    alone = await history_bytes(replace(setup, stored=False), 'alone')
    stored = await history_bytes(setup, 'stored')
    assert stored / alone <= 0.06
