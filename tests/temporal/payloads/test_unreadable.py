"""A piece or key that is not there ends the activity or the workflow, by name. No task is tried for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError, TerminatedError

from harness_temporal.temporal.payloads import Key
from tests.temporal.effects import noted
from tests.temporal.payloads.workers import Parent, Setup, noise
from tests.temporal.runs import activities_of, until

pytestmark = pytest.mark.temporal

OLD, NEW = Key.generate('old').dump(), Key.generate('new').dump()


def remove(piece: Path) -> None:
    piece.unlink()


def damage(piece: Path) -> None:
    piece.write_bytes(piece.read_bytes()[::-1])


def for_each_piece(setup: Setup, do: Callable[[Path], None]) -> None:
    pieces = [path for path in (setup.folder / 'pieces').rglob('*') if path.is_file()]
    assert pieces
    for piece in pieces:
        do(piece)


async def failure_of(run: WorkflowHandle[Any, Any]) -> BaseException | None:
    async with asyncio.timeout(60):
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    return raised.value.cause


@pytest.mark.parametrize(('do', 'reason'), [(remove, 'is missing from the media store'), (damage, 'is damaged')])
async def test_a_prompt_whose_pieces_are_gone_fails_the_workflow(
    setup: Setup, do: Callable[[Path], None], reason: str
) -> None:
    run = await setup.start(f'={noise(5000)}', 'echo')
    for_each_piece(setup, do)
    async with setup.working():
        cause = await failure_of(run)
    assert isinstance(cause, ApplicationError)
    assert cause.type == 'PayloadUnreadableError'
    assert f"workflow 'echo-{setup.task_queue}'" in cause.message
    assert 'media+sha256://' in cause.message
    assert reason in cause.message


async def test_an_activity_whose_input_is_gone_fails_at_once(setup: Setup) -> None:
    """One process schedules the activity, and another one, which remembers no piece, gets it."""
    async with await setup.worker(activities=False):
        run = await setup.start(f'={noise(5000)}', 'echo')

        async def scheduled() -> bool:
            return any(activities_of(await run.fetch_history()))

        await until(scheduled)
        for_each_piece(setup, remove)
        async with await setup.worker(workflows=False):
            cause = await failure_of(run)
    assert isinstance(cause, ActivityError)
    assert isinstance(cause.cause, ApplicationError)
    assert cause.cause.type == 'PayloadUnreadableError'
    assert "activity 'agent__reader__" in cause.cause.message
    assert 'media+sha256://' in cause.cause.message


async def test_a_run_that_cannot_be_replayed_is_terminated_by_name(setup: Setup) -> None:
    async with setup.working():
        run = await setup.start('page wait', 'pages')
        await until(lambda: bool(noted(setup.folder, 'waiting')))
    for_each_piece(setup, remove)
    (setup.folder / 'told').touch()
    async with setup.working():
        cause = await failure_of(run)
    assert isinstance(cause, TerminatedError)
    await is_terminated(run, f"workflow 'pages-{setup.task_queue}'")


async def test_a_parent_that_cannot_read_its_childs_result_again_is_terminated_by_name(setup: Setup) -> None:
    async with setup.working():
        run = await (await setup.client()).start_workflow(
            Parent.run, 5000, id=f'parent-{setup.task_queue}', task_queue=setup.task_queue
        )

        async def has_read() -> bool:
            kinds = [event.WhichOneof('attributes') or '' for event in (await run.fetch_history()).events]
            read = 'child_workflow_execution_completed_event_attributes'
            return read in kinds and 'workflow_task_completed_event_attributes' in kinds[kinds.index(read) :]

        await until(has_read)
    for_each_piece(setup, remove)
    await run.signal(Parent.tell)
    async with setup.working():
        cause = await failure_of(run)
    assert isinstance(cause, TerminatedError)
    await is_terminated(run, f"workflow 'parent-{setup.task_queue}'")


async def is_terminated(run: WorkflowHandle[Any, Any], owner: str) -> None:
    assert (await run.describe()).status == WorkflowExecutionStatus.TERMINATED
    [*_, last] = (await run.fetch_history()).events
    reason = last.workflow_execution_terminated_event_attributes.reason
    assert 'PayloadUnreadableError' in reason
    assert owner in reason
    assert 'media+sha256://' in reason


@pytest.mark.parametrize(
    ('keys', 'reason'),
    [
        pytest.param(NEW, "encrypted with the key 'old', which is not among the keys", id='unknown'),
        pytest.param('', "encrypted with the key 'old', and this `PayloadStorage` has no keys", id='none'),
        pytest.param(Key.generate('old').dump(), 'encrypted with another key of the same id', id='another'),
    ],
)
async def test_a_key_that_is_not_there_ends_the_workflow(setup: Setup, keys: str, reason: str) -> None:
    run = await replace(setup, keys=OLD).start('page', 'pages')
    other = replace(setup, keys=keys)
    async with other.working():
        # The error is encrypted as well, with the key that the worker has.
        cause = await failure_of((await other.client()).get_workflow_handle(run.id))
    assert isinstance(cause, ApplicationError)
    assert cause.type == 'PayloadUnreadableError'
    assert f"workflow 'pages-{setup.task_queue}'" in cause.message
    assert reason in cause.message
