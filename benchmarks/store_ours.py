"""The writes of this package's capability at the boundaries of a run, as its operations make them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic_ai.messages import ModelMessage

from benchmarks.store_history import RUN, TOOL, called, response, result, returned
from benchmarks.store_times import Save, seconds
from harness_temporal import stores
from harness_temporal.history import encode_history, encode_message
from harness_temporal.records import Batch, ModelResponseRecord
from harness_temporal.step_persistence import effects, operations
from harness_temporal.step_persistence.facts import (
    EventFacts,
    ModelRequestFacts,
    RunFacts,
    SnapshotFacts,
    ToolCallFacts,
)
from harness_temporal.step_persistence.outcomes import ended_with_value


@asynccontextmanager
async def opened(kind: str, address: str, name: str) -> AsyncGenerator[Writer]:
    match kind:
        case 'memory':
            store = stores.InMemoryStepStore()
        case 'file':
            store = stores.FileStepStore(f'{address}/{name}')
        case 'sqlite':
            store = stores.SqliteStepStore(f'{address}/{name}.db')
        case 'postgres':
            store = stores.PostgresStepStore(address, schema=name)
        case _:
            store = stores.MongoStepStore(db_url=address, database=name)
    yield Writer(store)
    await store.aclose()


class Writer:
    """Writes one run."""

    def __init__(self, store: stores.StepStore) -> None:
        self._store = store
        self._commit, self._committing = store.commit, 0.0
        store.commit = self._timed
        self._run = RunFacts(run_id=RUN, registration_id=f'{RUN}/registration', conversation_id=RUN, agent_name=RUN)

    async def begin(self) -> None:
        await operations.start_run(self._store, self._run, host={})

    async def _timed(self, records: Batch) -> None:
        self._committing, _ = await seconds(self._commit(records))

    async def step(self, step: int, messages: list[ModelMessage]) -> Save:
        """Write a model request and the call of a tool."""
        store, run = self._store, self._run
        request = ModelRequestFacts(step_index=step, subject=f'request-{step}', save=step)
        wall, cpu = await seconds(operations.start_model_request(store, run, request, messages, attempt=1))
        save = Save(wall=wall, cpu=cpu, commit=self._committing)
        messages.append(response(step))
        body = encode_message(messages[-1]).body
        recorded = ModelResponseRecord(run_id=RUN, key=f'{RUN}:{step}', body=body)
        await operations.finish_model_request(store, run, request, attempt=1, response=recorded)
        call = ToolCallFacts(tool_call_id=called(step), tool_name=TOOL, step_index=step).keyed(run, {'step': step})
        claim = await effects.claim(store, run, call, recovery='declared', holder=f'attempt-{step}')
        await effects.finish(store, run, call, claim.record, ended_with_value(result(step)))
        messages.append(returned(step))
        return save

    async def end(self, step: int, messages: list[ModelMessage]) -> None:
        last = SnapshotFacts.of(encode_history(messages), save=step, step_index=step, state='complete')
        ended = EventFacts(kind='run_completed', step_index=step)
        await operations.end_run(self._store, self._run, ended=ended, last=last)
