"""What each attempt at a model request saves before its tools run: a snapshot of its own, on the same history."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse, ToolCallPart

from harness_temporal.history import encode_message
from harness_temporal.records import ModelResponseRecord
from harness_temporal.step_persistence import InMemoryStepStore, load_frontier, operations
from harness_temporal.step_persistence.facts import ModelRequestFacts, RunFacts
from harness_temporal.testing.samples import NOON, a_run, asks

RUN = RunFacts(run_id='run-1', registration_id='run-1')
REQUEST = ModelRequestFacts(step_index=1, subject='request', frontier_save=2)
PROMPT = asks('go')


def proposes(city: str) -> ModelResponse:
    """Make a response that another attempt at the same request would not get again."""
    return ModelResponse(parts=[ToolCallPart('look', {'city': city}, tool_call_id='call-1')], timestamp=NOON)


async def answered(store: InMemoryStepStore, response: ModelResponse, *, attempt: int) -> None:
    history = await operations.start_model_request(store, RUN, REQUEST, [PROMPT], attempt=attempt)
    await operations.finish_model_request(
        store,
        RUN,
        REQUEST,
        attempt=attempt,
        response=ModelResponseRecord(run_id=RUN.run_id, key='request-1', body=encode_message(response).body),
        frontier=(history, response),
    )


async def test_each_attempt_at_a_request_saves_its_own_frontier() -> None:
    store = InMemoryStepStore()
    await store.register_run(a_run())
    first, second = proposes('Rome'), proposes('Oslo')
    await answered(store, first, attempt=1)
    # Doing the same attempt again is the same as doing it once.
    await answered(store, first, attempt=1)
    await answered(store, second, attempt=2)
    saved = await store.list_snapshots(run_id=RUN.run_id, include_interrupted=True)
    assert [item.messages for item in saved] == [[PROMPT, first], [PROMPT, second]]
    assert [item.state for item in saved] == ['interrupted', 'interrupted']
    assert len({item.idempotency_key for item in saved}) == 2
    # The tools of the run are those of the later response.
    assert (await load_frontier(store, run_id=RUN.run_id)).messages == [PROMPT, second]
