"""The effect ledger of `StepPersistence` as the source of recorded outcomes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse

from harness_temporal.step_persistence import InMemoryStepStore, StepPersistence
from tests.state.support import Bench, calls, outcomes


@pytest.mark.parametrize('policy', ['never', 'declared', 'always'])
async def test_outcome_of_the_ledger_is_used_instead_of_guessing(policy: Any) -> None:
    store = InMemoryStepStore()
    first = Bench(calls('plain', 'fails'), RuntimeError('down'), capabilities=[StepPersistence(store=store)])
    async with first.stream('go') as stream:
        events = aiter(stream)
        async for _ in events:
            checkpoint = await stream.export_state()
            if any(isinstance(message, ModelResponse) for message in checkpoint.message_history):
                break
        # The checkpoint is from before the tools ended; the rest of the run is only in the ledger.
        async for _ in events:
            pass
    assert outcomes(checkpoint) == {}
    effects = await store.list_tool_effects(run_id=stream.result.run_id)
    recorded = {effect.tool_call_id: effect.value for effect in effects if effect.value is not None}
    assert sorted(recorded) == ['fails', 'plain']
    bench = Bench('done')
    result = await bench.run(previous_state=checkpoint, tool_recovery=policy, recorded_outcomes=recorded)
    assert bench.ran == []
    assert outcomes(result.state) == {'plain': 'success: plain 1', 'fails': 'failed: it failed'}


async def test_runs_of_an_executable_are_persisted_under_their_own_ids() -> None:
    store = InMemoryStepStore()
    bench = Bench(calls('safe'), 'one', 'two', capabilities=[StepPersistence(store=store)])
    first = await bench.run('go')
    second = await bench.run('on', previous_state=first.state)
    for result in (first, second):
        snapshot = await store.latest_snapshot(run_id=result.run_id)
        assert snapshot is not None
        assert tuple(snapshot.messages) == result.state.message_history
        assert snapshot.conversation_id == result.thread_id
