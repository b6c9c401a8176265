"""A note about a tool's effect, and whatever follows an effect, waits for a store that is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from harness_temporal import annotate_tool_effect
from harness_temporal.errors import StoreCorruptionError, StoreUnavailableError
from harness_temporal.records import ToolEffectRecord
from harness_temporal.step_persistence import InMemoryStepStore, patience
from harness_temporal.step_persistence.context import tool_call_scope
from harness_temporal.step_persistence.patience import WRITE_RETRY_DELAYS, write_patiently
from harness_temporal.testing.samples import a_start

CALL = a_start()
AWAY = StoreUnavailableError('FailingStore', 'it is away.')


class FailingStore(InMemoryStepStore):
    """Raises so many times, and then is a store again."""

    def __init__(self, error: Exception = AWAY, *, times: int) -> None:
        super().__init__()
        self.error = error
        self.times = times
        self.tries = 0

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        self.tries += 1
        if self.tries <= self.times:
            raise self.error
        await super().record_tool_effect(record)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Do not wait, but collect for how long it would have been."""
    seconds: list[float] = []

    async def sleep(delay: float) -> None:
        seconds.append(delay)

    monkeypatch.setattr(patience, 'asyncio', SimpleNamespace(sleep=sleep))
    return seconds


async def annotated(store: InMemoryStepStore, **scope: Any) -> None:
    ctx = RunContext(
        deps=None, model=TestModel(), usage=RunUsage(), tool_call_id=CALL.tool_call_id, tool_name=CALL.tool_name
    )
    with tool_call_scope(CALL.run_id, CALL, **scope):
        await annotate_tool_effect(store, ctx, idempotency_key='order-7', effect_summary='charge')


async def notes(store: InMemoryStepStore) -> list[tuple[str, str | None, str | None]]:
    effects = await store.list_tool_effects(run_id=CALL.run_id)
    return [(effect.status, effect.idempotency_key, effect.effect_summary) for effect in effects]


async def test_a_note_waits_while_the_store_is_away(waited: list[float]) -> None:
    store = FailingStore(times=3)
    await annotated(store)
    assert waited == [0.1, 0.2, 0.5]
    assert await notes(store) == [('started', 'order-7', 'charge')]


async def test_a_note_is_in_the_ledger_when_the_store_comes_back_at_last(waited: list[float]) -> None:
    store = FailingStore(times=len(WRITE_RETRY_DELAYS))
    await annotated(store)
    assert await notes(store) == [('started', 'order-7', 'charge')]


async def test_a_note_does_not_wait_for_ever(waited: list[float]) -> None:
    store = FailingStore(times=100)
    with pytest.raises(StoreUnavailableError, match='it is away'):
        await annotated(store)
    # What the docstrings promise.
    assert 15 < sum(waited) < 16
    assert store.tries == len(waited) + 1


async def test_a_note_waits_for_no_store_that_says_otherwise(waited: list[float]) -> None:
    store = FailingStore(StoreCorruptionError('FailingStore', 'a record is damaged.'), times=1)
    with pytest.raises(StoreCorruptionError):
        await annotated(store)
    assert (store.tries, waited) == (1, [])


async def test_a_note_of_workflow_code_goes_to_no_store(waited: list[float]) -> None:
    store = FailingStore(times=100)
    await annotated(store, in_workflow=True)
    assert (store.tries, waited) == (0, [])


async def test_every_failed_try_is_told_before_the_wait(waited: list[float]) -> None:
    told: list[int] = []
    store = FailingStore(times=2)
    await write_patiently(lambda: store.record_tool_effect(CALL), waiting=lambda: told.append(len(waited)))
    assert told == [0, 1]
