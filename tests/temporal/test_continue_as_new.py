"""A run that goes on in further workflow runs: it stays one run, whatever dies on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory

from harness_temporal.records import SnapshotState
from harness_temporal.state import HarnessState
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.snapshots import LOAD_SNAPSHOT_ACTIVITY, SAVE_SNAPSHOT_ACTIVITY
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay, wait_until_dead
from tests.temporal.runs import Run, activities_of, start

pytestmark = pytest.mark.temporal


async def legs(client: Client, run: Run) -> list[WorkflowHistory]:
    """Return the histories of the workflow runs that the run went through."""
    histories: list[WorkflowHistory] = []
    next_run: str | None = run.handle.first_execution_run_id
    while next_run:
        histories.append(await client.get_workflow_handle(run.handle.id, run_id=next_run).fetch_history())
        ended = histories[-1].events[-1]
        next_run = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return histories


async def test_it_stays_one_run_when_workers_die_on_the_way(client: Client, workers: Workers, tmp_path: Path) -> None:
    dying = workers.start(kill_at='after_finish')
    run = await start(client, workers, 'count pay look pay count pay look', history_budget=HistoryBudget(events=25))
    await wait_until_dead(dying)
    workers.start()
    ended = await run.result()

    assert run.output == 'counted 1 | paid | looked | paid | counted 2 | paid | looked'
    assert len(noted(tmp_path, 'paid')) == len(set(noted(tmp_path, 'paid'))) == 3, 'no two calls have one key'
    assert ended.usage.requests == 8
    histories = await legs(client, run)
    assert len(histories) > 3
    assert len(histories) < 9, 'no workflow run without a step of its own'

    [record] = await run.store.list_runs()
    assert (record.run_id, record.metadata) == (run.run_id, {'temporal.workflow_id': run.handle.id})
    events = await run.events()
    assert [event.kind for event in events].count('run_started') == 1
    assert [event.step_index for event in events if event.kind == 'model_request_completed'] == [*range(1, 9)]
    assert events[-1].kind == 'run_completed'
    assert len(await run.store.list_tool_effects(run_id=run.run_id)) == 7
    assert not await run.store.list_unresolved_tool_effects(run_id=run.run_id)
    for history in histories:
        await replay(history, workers.config)


async def test_its_snapshots_are_those_of_a_run_that_was_never_handed_on(client: Client, workers: Workers) -> None:
    workers.start()
    whole = await start(client, workers, 'look count look count')
    cut = await start(client, workers, 'look count look count', history_budget=HistoryBudget(events=1))
    await whole.result()
    await cut.result()

    async def saved(run: Run) -> list[tuple[int, SnapshotState, list[str]]]:
        return [
            (snapshot.step_index, snapshot.state, [type(message).__name__ for message in snapshot.messages])
            for snapshot in await run.store.list_snapshots(run_id=run.run_id)
        ]

    assert await saved(cut) == await saved(whole)
    assert len(await legs(client, cut)) == 5, 'one for each model request'
    last = await cut.store.latest_snapshot(run_id=cut.run_id)
    assert last is not None
    assert {message.run_id for message in last.messages} == {last.messages[0].run_id}
    assert {message.conversation_id for message in last.messages} == {cut.ended.conversation_id}


async def test_a_large_history_goes_by_reference_and_a_small_one_by_value(client: Client, workers: Workers) -> None:
    workers.start()
    run = await start(client, workers, 'recite count recite look', history_budget=HistoryBudget(events=1))
    ended = await run.result()
    assert run.output.endswith('| looked')

    names = [activities_of(history) for history in await legs(client, run)]
    assert [SAVE_SNAPSHOT_ACTIVITY in leg for leg in names] == [False, False, True, True, False]
    assert [LOAD_SNAPSHOT_ACTIVITY in leg for leg in names] == [False, False, False, True, True]

    assert ended.state is not None
    assert ended.state.history == ended.snapshot
    state = await ended.state.load(run.store)
    assert isinstance(state, HarnessState)
    assert len(state.message_history) == 10
    assert state.agent_context_state.entries['tests'].data == {'times': 1}
    for history in await legs(client, run):
        await replay(history, workers.config)


async def test_a_history_that_no_other_workflow_run_could_be_given_stays_where_it_is(
    client: Client, workers: Workers
) -> None:
    """Without payload storage Temporal takes 2 MiB at once. Here the messages get there one by one."""
    workers.start(max_cached_workflows=0)
    prompt = 'recite recite recite recite recite' + ' ' * 1_850_000
    run = await start(client, workers, prompt, history_budget=HistoryBudget(events=1))
    ended = await run.result()

    assert ended.usage.requests == 6
    assert len(await legs(client, run)) == 3, 'as long as another one takes it'
    last = await run.store.latest_snapshot(run_id=run.run_id)
    assert last is not None
    assert len(last.messages) == 12
    for history in await legs(client, run):
        await replay(history, workers.config)


async def test_usage_limits_hold_across_workflow_runs(client: Client, workers: Workers, tmp_path: Path) -> None:
    from pydantic_ai.usage import UsageLimits

    from tests.temporal.test_agent_run import failure_of

    workers.start()
    run = await start(
        client,
        workers,
        'pay pay pay',
        usage_limits=UsageLimits(request_limit=2),
        history_budget=HistoryBudget(events=1),
    )
    assert 'UsageLimitExceeded' in str(await failure_of(run))
    assert len(noted(tmp_path, 'paid')) == 2


async def test_dedicated_boundaries_go_on_too(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start(boundaries='dedicated')
    run = await start(client, workers, 'pay look pay', boundaries='dedicated', history_budget=HistoryBudget(events=1))
    await run.result()
    assert run.output == 'paid | looked | paid'
    assert len(noted(tmp_path, 'paid')) == 2
    kinds = [event.kind for event in await run.events()]
    assert (kinds.count('run_started'), kinds.count('model_request_completed'), kinds[-1]) == (1, 4, 'run_completed')
    for history in await legs(client, run):
        await replay(history, replace(workers.config, boundaries='dedicated'))


async def test_what_a_replay_would_cost_is_bounded(client: Client, workers: Workers) -> None:
    workers.start()
    run = await start(client, workers, 'look look look look', history_budget=HistoryBudget(walked_messages=4))
    await run.result()
    # Requests with 1, 3, 5, 7 and 9 messages: the history before each adds up to 0, 2; 4; 6; 8.
    assert [
        len([name for name in activities_of(leg) if name.endswith('model_request')]) for leg in await legs(client, run)
    ] == [
        2,
        1,
        1,
        1,
    ]
