"""Values of any size up to the limit cross; past it the call ends at once, and says which one it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError

from harness_temporal.temporal.payloads import PayloadTooLargeError
from tests.temporal.payloads.workers import MEGABYTE, Setup, noise

pytestmark = pytest.mark.temporal


async def test_a_result_a_prompt_and_an_output_of_5_mb_pass(setup: Setup) -> None:
    async with setup.working():
        book = await setup.start('book', 'book')
        assert (await book.result()).output == noise(5 * MEGABYTE)
        prompt = f'={noise(6 * MEGABYTE)}'
        echo = await setup.start(prompt, 'echo')
        assert (await echo.result()).output == prompt[1:]
    described = await book.describe()
    assert described.raw_info.history_size_bytes < 50_000
    await setup.replay(await book.fetch_history())


async def test_without_storage_a_large_result_fails_at_once_with_the_tool_and_the_size(setup: Setup) -> None:
    plain = replace(setup, stored=False)
    async with plain.working():
        run = await plain.start('book', 'book')
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    is_too_large(raised.value, "tool 'book' of activity 'agent__reader__toolset__", 5 * MEGABYTE)


async def test_without_storage_a_large_prompt_is_refused_by_the_client(setup: Setup) -> None:
    plain = replace(setup, stored=False)
    with pytest.raises(PayloadTooLargeError, match=r'workflow .* has 3,000,'):
        await plain.start(f'={noise(3 * MEGABYTE)}', 'echo')


async def test_past_the_limit_a_result_fails_at_once_with_the_tool_and_the_size(setup: Setup) -> None:
    limited = replace(setup, limit=3 * MEGABYTE)
    async with limited.working():
        run = await limited.start('book', 'book')
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    is_too_large(raised.value, "tool 'book' of activity 'agent__reader__toolset__", 5 * MEGABYTE)
    assert not await was_tried_again(run)


async def test_past_the_limit_what_a_workflow_sends_fails_the_workflow_and_not_its_task(setup: Setup) -> None:
    """Two results that pass, each, make a request that does not."""
    limited = replace(setup, limit=6 * MEGABYTE)
    async with limited.working():
        run = await limited.start('book book', 'books')
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    # The request, or the snapshot of the failed run, which has the same messages.
    is_too_large(raised.value, "activity 'agent__reader__", 10 * MEGABYTE)
    assert not await was_tried_again(run)


async def test_past_the_limit_a_final_output_fails_the_workflow(setup: Setup) -> None:
    """Text of the output is in one message, and in the workflow's result a second time, with more around it."""
    prompt = f'={noise(MEGABYTE)}'
    async with replace(setup, limit=MEGABYTE + 1000).working():
        run = await setup.start(prompt * 3, 'echo')
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    is_too_large(raised.value, '', 3 * MEGABYTE)
    assert not await was_tried_again(run)


def is_too_large(error: WorkflowFailureError, owner: str, at_least: int) -> None:
    cause = error.cause
    if isinstance(cause, ActivityError):
        cause = cause.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == 'PayloadTooLargeError'
    assert cause.non_retryable
    assert owner in cause.message
    size = int(cause.message.partition(' has ')[2].partition(' bytes')[0].replace(',', ''))
    assert at_least <= size < at_least + 100_000


async def was_tried_again(run: WorkflowHandle[Any, Any]) -> bool:
    """Whether something of a run was tried again because of its size.

    On a busy machine an activity is also tried again because its heartbeats were late.
    """
    events = (await run.fetch_history()).events
    assert not any(event.HasField('workflow_task_failed_event_attributes') for event in events)
    failures = [event.activity_task_started_event_attributes.last_failure for event in events]
    return any(failure.application_failure_info.type == PayloadTooLargeError.__name__ for failure in failures)
