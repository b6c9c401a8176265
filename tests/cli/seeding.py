"""Runs in a store, as workers leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart

from harness_temporal.encryption import KeyRing
from harness_temporal.records import Batch, ContinuableSnapshot, EventKind, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.opening import open_store
from harness_temporal.stores.protocol import BaseStepStore
from harness_temporal.testing.samples import NOON

T = TypeVar('T')


def in_store(url: str, work: Callable[[BaseStepStore], Awaitable[T]], keys: KeyRing | None = None) -> T:
    async def worked() -> T:
        store = open_store(url, keys=keys)
        assert isinstance(store, BaseStepStore)
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(worked())


def committed(url: str, *batches: Batch, keys: KeyRing | None = None) -> None:
    async def commit(store: BaseStepStore) -> None:
        for batch in batches:
            await store.commit(batch)

    in_store(url, commit, keys)


def a_run(run_id: str, *, minutes: int = 0, **fields: str) -> RunRecord:
    """Return a run that began so long after noon."""
    return RunRecord(run_id=run_id, started_at=NOON + timedelta(minutes=minutes), registration_id=run_id, **fields)  # pyright: ignore[reportArgumentType]


def event(run_id: str, kind: EventKind, step: int = 0, error: str | None = None) -> StepEvent:
    return StepEvent(run_id=run_id, kind=kind, step_index=step, timestamp=NOON, error=error)


def said(run_id: str, *texts: str, step: int = 1) -> ContinuableSnapshot:
    """Return a snapshot of a conversation, in which the model has the last word."""
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(text, timestamp=NOON)], timestamp=NOON)
        if index % 2 == 0
        else ModelResponse(parts=[TextPart(text)], timestamp=NOON)
        for index, text in enumerate(texts)
    ]
    return ContinuableSnapshot(run_id=run_id, step_index=step, messages=messages, timestamp=NOON)


def a_payment(run_id: str, *, status: str = 'started') -> ToolEffectRecord:
    return ToolEffectRecord(
        run_id=run_id,
        tool_call_id='call-1',
        tool_name='pay',
        call_key=f'{run_id}-key',
        status=status,  # pyright: ignore[reportArgumentType]
        started_at=NOON,
        step_index=1,
        holder='a worker that died',
        idempotency_key='order-7',
        effect_summary='3 cents',
    )


def cut_off(run_id: str, agent: str = 'clerk') -> Batch:
    """Return a run whose worker died in the middle of a payment."""
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('pay', timestamp=NOON)], timestamp=NOON),
        ModelResponse(parts=[ToolCallPart('pay', {'cents': 3}, tool_call_id='call-1')], timestamp=NOON),
    ]
    snapshot = ContinuableSnapshot(
        run_id=run_id, step_index=1, messages=messages, state='interrupted', timestamp=NOON, agent_name=agent
    )
    return [replace(a_run(run_id), agent_name=agent), event(run_id, 'run_started'), snapshot, a_payment(run_id)]
