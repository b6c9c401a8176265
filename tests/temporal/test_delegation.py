"""An agent's tool hands work to another agent, which runs in a child workflow."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.usage import UsageLimits
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistory

from harness_temporal.step_persistence import run_tree
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.threads import HarnessThreads
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay, wait_until_dead
from tests.temporal.runs import Run, start, until
from tests.temporal.threads import legs, new_id

pytestmark = pytest.mark.temporal


async def delegating(client: Client, workers: Workers, *steps: tuple[str, str], **settings: Any) -> Run:
    return await start(client, workers, json.dumps(steps), agent='orchestrator', **settings)


def started(history: WorkflowHistory) -> list[tuple[str, timedelta]]:
    """Return the ids and the time-outs of a workflow's children."""
    initiated = [
        event.start_child_workflow_execution_initiated_event_attributes
        for event in history.events
        if event.HasField('start_child_workflow_execution_initiated_event_attributes')
    ]
    return [(child.workflow_id, child.workflow_execution_timeout.ToTimedelta()) for child in initiated]


async def children(client: Client, run: Run) -> list[WorkflowExecutionStatus | None]:
    ids = [child for child, _ in started(await run.history())]
    return [(await client.get_workflow_handle(child).describe()).status for child in ids]


async def test_a_delegates_work_is_continued_on_another_worker_and_the_tree_tells_of_all(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    dying = workers.start(kill_at='after_finish')
    nested = json.dumps([['scripted', 'look']])
    run = await delegating(client, workers, ('scripted', 'pay count'), ('scripted', '+count'), ('orchestrator', nested))
    await wait_until_dead(dying)
    workers.start()
    ended = await run.result()
    assert run.output == 'paid | counted 1 | counted 1 | looked', 'a continued run has the history, not the state'
    assert len(noted(tmp_path, 'paid')) == 1
    # Four of its own, five of its delegates, two and two below.
    assert ended.usage.requests == 4 + 3 + 2 + 2 + 2

    tree = await run_tree(run.store, run_id=run.run_id)
    assert tree is not None
    assert [(depth, record.agent_name) for depth, record in tree.walk()] == [
        (0, 'orchestrator'),
        (1, 'scripted'),
        (1, 'scripted'),
        (1, 'orchestrator'),
        (2, 'scripted'),
    ]
    first, second, _ = (child.run for child in tree.children)
    histories = [await run.store.latest_snapshot(run_id=item.run_id) for item in (first, second)]
    lengths = [len(snapshot.messages) for snapshot in histories if snapshot is not None]
    assert lengths == [6, 6 + 4], 'the second goes on from the first'
    assert await run_tree(run.store, run_id='nobody') is None
    continued, _ = started(await run.history())[1]
    described = await client.get_workflow_handle(continued).describe()
    assert await described.static_details() == f'agent `scripted` · goes on from run `{first.run_id}`\n\n`count`'
    await replay(await run.history(), workers.config)


async def test_a_cancelled_turn_cancels_the_delegate(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    threads = HarnessThreads(client, agent='orchestrator', task_queue=workers.task_queue)
    thread = await threads.open(new_id())
    await thread.send(json.dumps([['scripted', 'pay waits']]), wait='accepted')
    await until(lambda: (tmp_path / 'waiting').exists())
    assert (await thread.cancel()).status == 'cancelled'
    run = Run(thread.handle, 'orchestrator', workers.config.open_store())  # pyright: ignore[reportArgumentType]
    assert await children(client, run) == [WorkflowExecutionStatus.CANCELED]
    again = await thread.send(json.dumps([['scripted', 'look']]))
    assert again.status == 'answered'
    assert 'looked' in again.output
    assert len(noted(tmp_path, 'paid')) == 1
    await replay(await run.history(), workers.config)


async def test_limits_and_time_of_the_orchestrator_hold_for_its_delegates(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await delegating(client, workers, ('hasty', 'waits'), ('scripted', 'broken'), ('scripted', 'asks'))
    await run.result()
    late, broken, asking = run.output.split(' | ')
    assert late == "'hasty' did not end in time, and was stopped."
    assert broken == "'scripted' failed with RuntimeError: out of order"
    assert asking.startswith("'scripted' did not finish (suspended).")

    limited = await delegating(
        client, workers, ('scripted', 'pay pay pay pay'), usage_limits=UsageLimits(request_limit=4)
    )
    await limited.result()
    assert 'failed with UsageLimitExceeded' in limited.output
    # The orchestrator had made one request, so its delegate had three.
    assert len(noted(tmp_path, 'paid')) == 3
    await replay(await run.history(), workers.config)


async def test_children_and_continued_workflows_without_a_time_out_give_their_delegates_none(
    client: Client, workers: Workers
) -> None:
    """Temporal tells both of a time-out of 0."""
    workers.start()
    nested = json.dumps([['scripted', 'look']])
    run = await delegating(
        client, workers, ('orchestrator', nested), ('scripted', 'look'), history_budget=HistoryBudget(events=5)
    )
    await run.result()
    histories = await legs(client, run.handle)
    assert len(histories) > 1
    own = [child for history in histories for child in started(history)]
    below = started(await client.get_workflow_handle(own[0][0]).fetch_history())
    assert [timeout for _, timeout in own + below] == [timedelta(0)] * 3


async def test_the_workflows_time_out_counts_from_its_first_run_however_often_it_continues_as_new(
    client: Client, workers: Workers
) -> None:
    workers.start()
    run = await delegating(
        client,
        workers,
        *[('scripted', 'look')] * 3,
        history_budget=HistoryBudget(events=5),
        execution_timeout=timedelta(minutes=5),
    )
    await run.result()
    histories = await legs(client, run.handle)
    assert len(histories) > 2
    began = histories[0].events[0].event_time.ToDatetime()
    late = [end - began - timedelta(minutes=5) for history in histories for end in ends_of_children(history)]
    assert len(late) == 3
    assert max(map(abs, late)) < timedelta(milliseconds=1)
    await replay(histories[-1], workers.config)


def ends_of_children(history: WorkflowHistory) -> list[datetime]:
    """Return when each child has to end, counted from when the workflow's code asked for it."""
    ends: list[datetime] = []
    for event in history.events:
        child = event.start_child_workflow_execution_initiated_event_attributes
        if child.workflow_id:
            completed = history.events[child.workflow_task_completed_event_id - 1]
            asked = history.events[completed.workflow_task_completed_event_attributes.started_event_id - 1]
            ends.append(asked.event_time.ToDatetime() + child.workflow_execution_timeout.ToTimedelta())
    return ends
