"""Where a run stood when it stopped: its newest snapshot, the response after it, what the ledger has of its calls."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic_ai.messages import ModelMessage

from harness_temporal.errors import FrontierLostError, SnapshotNotFoundError
from harness_temporal.history import encode_message
from harness_temporal.records import ModelResponseRecord, Record, StepEvent, ToolEffectRecord
from harness_temporal.step_persistence import InMemoryStepStore, load_frontier
from harness_temporal.step_persistence.frontier import has_ended
from harness_temporal.step_persistence.operations import RESPONSE_METADATA_KEY
from harness_temporal.testing.samples import NOON, a_run, a_snapshot, a_start, an_end, an_event, asks, calls, returns

SETTLED: list[ModelMessage] = [asks('pay'), calls({'step': 1}), returns('ok')]
"""The history at the second model request."""
RESPONSE = calls({'step': 2})


def responded(step: int) -> StepEvent:
    return an_event(
        kind='model_request_completed',
        step_index=step,
        metadata={RESPONSE_METADATA_KEY: f'response {step}'},
        idempotency_key=f'completed {step}',
    )


def response(step: int, message: ModelMessage) -> ModelResponseRecord:
    return ModelResponseRecord(run_id='run-1', key=f'response {step}', body=encode_message(message).body)


def effect(step: int, *, key: str = 'key-1', value: bytes | None = b'"ok"', **fields: object) -> ToolEffectRecord:
    if value is None:
        return a_start(step_index=step, call_key=key, **fields)
    return an_end(step_index=step, call_key=key, value=value, **fields)


async def store_with(*records: Record) -> InMemoryStepStore:
    store = InMemoryStepStore()
    await store.commit([a_run(), *records])
    return store


def settled(step: int = 2, messages: list[ModelMessage] = SETTLED) -> Record:
    return a_snapshot(messages, step_index=step, conversation_id='talk')


async def test_a_response_after_the_newest_snapshot_belongs_to_it_with_what_the_ledger_has() -> None:
    store = await store_with(
        response(1, SETTLED[1]),
        responded(1),
        effect(1, key='first', value=b'"step 1"'),
        settled(),
        response(2, RESPONSE),
        responded(2),
        effect(2, key='second', value=b'"step 2"'),
    )
    frontier = await load_frontier(store, run_id='run-1')
    assert frontier.messages == [*SETTLED, RESPONSE]
    assert frontier.outcomes == {'call-1': b'"step 2"'}, 'not that of the same id one step earlier'
    assert frontier.conversation_id == 'talk'


async def test_a_response_that_the_snapshot_has_is_not_there_twice() -> None:
    # As the run's last snapshot has it: stamped by the run, and of the same step.
    stamped = replace(RESPONSE, run_id='run-1', conversation_id='talk')
    store = await store_with(response(2, RESPONSE), responded(2), settled(2, [*SETTLED, stamped]))
    assert (await load_frontier(store, run_id='run-1')).messages == [*SETTLED, stamped]
    answered = [*SETTLED, stamped, returns('ok')]
    store = await store_with(response(2, RESPONSE), responded(2), settled(3, answered))
    assert (await load_frontier(store, run_id='run-1')).messages == answered


async def test_of_a_call_that_ran_twice_in_its_step_the_last_time_counts() -> None:
    asked = effect(2, key='asked', value=b'{"kind":"approval_required","metadata":null}')
    approved = effect(2, key='approved', value=b'"paid"')
    store = await store_with(settled(), response(2, RESPONSE), responded(2), asked, approved)
    assert (await load_frontier(store, run_id='run-1')).outcomes == {'call-1': b'"paid"'}

    unknown = effect(2, key='approved', value=None)
    store = await store_with(settled(), response(2, RESPONSE), responded(2), asked, unknown)
    assert (await load_frontier(store, run_id='run-1')).outcomes == {}, 'it may have been paid'


@pytest.mark.parametrize('call_id', ['call-1', 'call-9'])
async def test_calls_of_a_response_that_is_not_there_are_not_passed_over(call_id: str) -> None:
    store = await store_with(settled(1), effect(2, tool_call_id=call_id, value=None))
    with pytest.raises(FrontierLostError, match='charge_card') as caught:
        await load_frontier(store, run_id='run-1')
    assert caught.value.tool_names == ('charge_card',)


async def test_a_run_without_a_snapshot_has_no_frontier() -> None:
    store = await store_with(response(1, SETTLED[1]), responded(1))
    with pytest.raises(SnapshotNotFoundError):
        await load_frontier(store, run_id='run-1')


async def test_an_end_is_an_end_either_way() -> None:
    for kind in ('run_completed', 'run_failed'):
        store = await store_with(an_event(kind='run_started'))
        assert not await has_ended(store, run_id='run-1')
        await store.append_event(an_event(kind=kind, timestamp=NOON))
        assert await has_ended(store, run_id='run-1')
