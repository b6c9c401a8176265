"""The writes of the peer's capability at the boundaries of a run, in its order and with its keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    FileStepStore,
    InMemoryStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepStore,
    ToolEffectRecord,
)

from benchmarks.store_history import RUN, TOOL, called, response, returned
from benchmarks.store_times import Save, seconds


@asynccontextmanager
async def opened(kind: str, address: str, name: str) -> AsyncGenerator[Writer]:
    match kind:
        case 'memory':
            yield Writer(InMemoryStepStore())
        case 'file':
            yield Writer(FileStepStore(f'{address}/{name}'))
        case 'sqlite':
            yield Writer(SqliteStepStore(database=f'{address}/{name}.db'))
        case 'postgres':
            import asyncpg
            from pydantic_ai_harness.step_persistence import PostgresStepStore

            # Its tables have no schema of their own: the pool's search path gives them one.
            async with asyncpg.create_pool(address, server_settings={'search_path': name}) as pool:
                await pool.execute(f'CREATE SCHEMA IF NOT EXISTS {name}')
                yield Writer(PostgresStepStore(pool))
        case _:
            from pydantic_ai_harness.step_persistence import MongoStepStore

            store = MongoStepStore(db_url=address, database=name)
            yield Writer(store)
            await store.aclose()


class Writer:
    """Writes one run."""

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._events = 0
        self._saves = 0

    async def begin(self) -> None:
        assert await self._store.get_run(run_id=RUN) is None
        await self._store.register_run(
            RunRecord(run_id=RUN, conversation_id=RUN, agent_name=RUN, registration_id=f'{RUN}/registration')
        )
        await self._event('run_started', 0)

    async def step(self, step: int, messages: list[ModelMessage]) -> Save:
        """Write a model request and the call of a tool."""
        store, call = self._store, called(step)
        await self._event('model_request_started', step)
        messages.append(response(step))
        await self._event('model_request_completed', step)
        await store.record_tool_effect(
            ToolEffectRecord(tool_call_id=call, tool_name=TOOL, run_id=RUN, status='started')
        )
        await self._event('tool_call_started', step, tool_call_id=call, tool_name=TOOL)
        prior = await store.get_tool_effect(run_id=RUN, tool_call_id=call)
        assert prior is not None
        await store.record_tool_effect(replace(prior, status='completed', ended_at=prior.started_at.astimezone(UTC)))
        await self._event('tool_call_completed', step, tool_call_id=call, tool_name=TOOL)
        messages.append(returned(step))
        wall, cpu = await seconds(self._save(step, messages))
        return Save(wall=wall, cpu=cpu, commit=wall)

    async def end(self, step: int, messages: list[ModelMessage]) -> None:
        await self._save(step, messages)
        await self._event('run_completed', step)

    async def _event(self, kind: Any, step: int, **call: str) -> None:
        key = f'{self._events}:{step}:{kind}:{call.get("tool_call_id", "")}'
        self._events += 1
        await self._store.append_event(
            StepEvent(
                run_id=RUN,
                kind=kind,
                step_index=step,
                conversation_id=RUN,
                agent_name=RUN,
                idempotency_key=key,
                **call,
            )
        )

    async def _save(self, step: int, messages: list[ModelMessage]) -> None:
        key = f'{self._saves}:{step}:complete'
        self._saves += 1
        await self._store.save_snapshot(
            ContinuableSnapshot(
                run_id=RUN,
                step_index=step,
                messages=list(messages),
                conversation_id=RUN,
                agent_name=RUN,
                idempotency_key=key,
            )
        )
