"""A run in a workflow: what it writes, what it costs, and what every kind of tool does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_ai.messages import BinaryContent, ImageUrl, ToolReturnPart
from pydantic_ai.usage import UsageLimits
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from harness_temporal.media import DiskMediaStore, media_uri
from harness_temporal.step_persistence import inspect_recovery
from harness_temporal.temporal import SnapshotReference
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay
from tests.temporal.runs import Run, start, until
from tests.temporal.scenarios import PICTURE

pytestmark = pytest.mark.temporal


async def finished(client: Client, workers: Workers, prompt: str | None, **settings: object) -> Run:
    run = await start(client, workers, prompt, **settings)
    await run.result()
    return run


async def failure_of(run: Run) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as caught:
        await run.result()
    cause = caught.value.cause
    if isinstance(cause, ActivityError):
        cause = cause.cause
    assert isinstance(cause, ApplicationError)
    return cause


async def test_persistence_adds_two_activities_whatever_the_steps(client: Client, workers: Workers) -> None:
    workers.start()
    run = await finished(client, workers, 'look pay+pay_sync look')

    activities = await run.activities()
    ours = [name for name in activities if 'step_persistence' in name]
    assert ours == [
        'agent__scripted__capability__step_persistence__start_run',
        'agent__scripted__capability__step_persistence__end_run',
    ]
    assert len(activities) == 2 + 4 + 4, 'two of ours, four model requests, four tool calls'
    await replay(await run.history(), workers.config)


async def test_the_log_of_a_run_is_complete_and_in_order(client: Client, workers: Workers) -> None:
    workers.start()
    run = await finished(client, workers, 'look pay')

    assert [(event.kind, event.step_index, event.tool_name) for event in await run.events()] == [
        ('run_started', 0, None),
        ('model_request_started', 1, None),
        ('model_request_completed', 1, None),
        ('tool_call_started', 1, 'look'),
        ('tool_call_completed', 1, 'look'),
        ('model_request_started', 2, None),
        ('model_request_completed', 2, None),
        ('tool_call_started', 2, 'pay'),
        ('tool_call_completed', 2, 'pay'),
        ('model_request_started', 3, None),
        ('model_request_completed', 3, None),
        ('run_completed', 3, None),
    ]
    snapshots = await run.store.list_snapshots(run_id=run.run_id)
    assert [(snapshot.step_index, len(snapshot.messages)) for snapshot in snapshots] == [(2, 3), (3, 5), (3, 6)]
    [look, pay] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (look.status, look.value) == ('completed', b'{"result":"looked","kind":"tool_return"}')
    assert pay.effect_summary == 'charge the card', 'noted inside the activity'
    record = await run.store.get_run(run_id=run.run_id)
    assert record is not None
    assert record.agent_name == 'scripted'


async def test_a_worker_without_cache_replays_every_task_and_writes_nothing_twice(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start(max_cached_workflows=0)
    run = await finished(client, workers, 'look pay look')
    kinds = [event.kind for event in await run.events()]
    assert kinds.count('model_request_completed') == 4
    assert len(kinds) == len({event.idempotency_key for event in await run.events()})
    assert len(noted(tmp_path, 'paid')) == 1
    ends = [name for name in await run.activities() if name.endswith('__end_run')]
    assert len(ends) == 1, 'what the end extends is what the store has: a replay makes the same messages'


async def test_a_history_that_the_requests_do_not_have_is_saved_by_a_worker_that_replays_every_task(
    client: Client, workers: Workers
) -> None:
    """A replay stamps messages anew, so what it extends is not what the store has."""
    workers.start(max_cached_workflows=0)
    run = await finished(client, workers, 'look look look', agent='forgetful')
    snapshots = await run.store.list_snapshots(run_id=run.run_id)
    assert [len(snapshot.messages) for snapshot in snapshots] == [3, 5, 7, 8]
    await replay(await run.history(), workers.config)


async def test_dedicated_boundaries_are_rows_of_their_own(client: Client, workers: Workers) -> None:
    workers.start(boundaries='dedicated')
    run = await finished(client, workers, 'pay', boundaries='dedicated')
    prefix = 'agent__scripted__capability__step_persistence__'
    ours = [name.removeprefix(prefix) for name in await run.activities() if name.startswith(prefix)]
    assert ours == [
        'start_run',
        'append_event',
        'append_event',
        'start_tool_effect',
        'finish_tool_effect',
        'save_snapshot',
        'append_event',
        'append_event',
        'save_snapshot',
        'end_run',
    ]
    kinds = [event.kind for event in await run.events()]
    assert kinds == [
        'run_started',
        'model_request_started',
        'model_request_completed',
        'tool_call_started',
        'tool_call_completed',
        'model_request_started',
        'model_request_completed',
        'run_completed',
    ]
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (effect.status, effect.attempts) == ('completed', 1)
    assert effect.effect_summary == 'charge the card'
    await replay(await run.history(), replace(workers.config, boundaries='dedicated'))


async def test_an_undeclared_tool_that_raises_fails_the_run_and_is_not_retried(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await start(client, workers, 'look broken')
    error = await failure_of(run)
    assert (error.type, error.message) == ('RuntimeError', 'out of order')
    assert len(noted(tmp_path, 'broken')) == 1

    left = await inspect_recovery(store=run.store, run_id=run.run_id)
    assert left.failed_tools == ('broken',)
    assert left.latest is not None
    assert left.latest.state == 'interrupted'
    assert left.settled is not None
    assert len(left.settled.messages) == 3, 'the cycle before it'
    assert (await run.events())[-1].kind == 'run_failed'
    await replay(await run.history(), workers.config)


async def test_a_declared_tool_that_raises_is_tried_three_times(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await start(client, workers, 'flaky')
    error = await failure_of(run)
    assert error.type == 'ConnectionError'
    assert len(noted(tmp_path, 'flaky')) == 3
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (effect.status, effect.outcome, effect.attempts) == ('failed', 'error', 3)


async def test_a_given_retry_policy_decides_alone(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await start(client, workers, 'broken_twice')
    assert (await failure_of(run)).type == 'RuntimeError'
    assert len(noted(tmp_path, 'broken')) == 2


@pytest.mark.parametrize(
    ('steps', 'outcomes'),
    [
        ('retries retries', ['retry', 'returned']),
        ('fails', ['failed']),
        ('asks', ['approval_required']),
        ('elsewhere', ['deferred']),
    ],
)
async def test_control_flow_is_an_outcome_and_the_body_runs_once_per_call(
    client: Client, workers: Workers, tmp_path: Path, steps: str, outcomes: list[str]
) -> None:
    workers.start()
    run = await finished(client, workers, steps)
    effects = await run.store.list_tool_effects(run_id=run.run_id)
    assert [effect.outcome for effect in effects] == outcomes
    assert all(effect.status != 'started' and effect.value is not None for effect in effects)
    tool = steps.split()[0]
    bodies = noted(tmp_path, {'asks': 'asked'}.get(tool, tool))
    assert len(bodies) == len(outcomes)
    assert run.ended.status == ('suspended' if outcomes[-1] in ('approval_required', 'deferred') else 'completed')
    await replay(await run.history(), workers.config)


@pytest.mark.parametrize(
    ('tool', 'output'), [('in_workflow', 'computed in the workflow'), ('as_child', 'computed in a child workflow')]
)
async def test_tools_in_workflow_code_are_recorded_with_the_next_boundary(
    client: Client, workers: Workers, tool: str, output: str
) -> None:
    workers.start()
    run = await finished(client, workers, f'{tool} look')
    assert run.output == f'{output} | looked'
    assert await run.tool_events() == [
        ('tool_call_started', tool, None),
        ('tool_call_completed', tool, None),
        ('tool_call_started', 'look', None),
        ('tool_call_completed', 'look', None),
    ]
    effects = await run.store.list_tool_effects(run_id=run.run_id)
    assert [effect.status for effect in effects] == ['completed', 'completed']
    assert sum('step_persistence' in name for name in await run.activities()) == 2
    await replay(await run.history(), workers.config)


async def test_tools_of_a_dynamic_toolset_have_the_ledger_too(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await finished(client, workers, 'found', agent='discovering')
    assert run.output == 'found'
    assert len(noted(tmp_path, 'found')) == 1
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (effect.tool_name, effect.status) == ('found', 'completed')
    await replay(await run.history(), workers.config)


async def test_tools_of_an_mcp_server_have_the_ledger_too(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await finished(client, workers, 'pay_remotely+look_remotely', agent='connected')
    assert run.output == 'pay_remotely by MCP | look_remotely by MCP'
    assert len(noted(tmp_path, 'pay_remotely')) == 1
    effects = {effect.tool_name: effect for effect in await run.store.list_tool_effects(run_id=run.run_id)}
    assert {name: effect.status for name, effect in effects.items()} == {
        'pay_remotely': 'completed',
        'look_remotely': 'completed',
    }
    await replay(await run.history(), workers.config)


async def test_large_files_are_urls_after_one_activity(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await finished(client, workers, 'photograph look look', agent='pictured')
    assert [name for name in await run.activities() if name.endswith('__externalize')] == [
        'agent__pictured__capability__media_externalizer__externalize'
    ]
    snapshots = await run.store.list_snapshots(run_id=run.run_id, include_interrupted=True)
    url = f'https://cdn.test/{media_uri(PICTURE)[-64:]}.bin'
    returned = [
        part.content
        for message in snapshots[-1].messages
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == 'photograph'
    ]
    identifier = BinaryContent(PICTURE, media_type='image/png').identifier
    assert returned == [ImageUrl(url, media_type='image/png', identifier=identifier)]
    assert await DiskMediaStore(tmp_path / 'blobs').get(media_uri(PICTURE)) == PICTURE
    await replay(await run.history(), workers.config)


async def test_a_request_that_is_not_the_history_leaves_the_history_whole(client: Client, workers: Workers) -> None:
    workers.start()
    run = await finished(client, workers, 'look look look look', agent='forgetful')
    snapshots = await run.store.list_snapshots(run_id=run.run_id, include_interrupted=True)
    assert [len(snapshot.messages) for snapshot in snapshots] == [3, 5, 7, 9, 10]
    assert {snapshot.state for snapshot in snapshots} == {'complete'}
    await replay(await run.history(), workers.config)


async def test_capture_frontier_keeps_prompt_and_proposed_calls(client: Client, workers: Workers) -> None:
    settings = {'capture_frontier': True}
    workers.start(settings=settings)
    run = await finished(client, workers, 'look', settings=settings)
    snapshots = await run.store.list_snapshots(run_id=run.run_id, include_interrupted=True)
    assert [(snapshot.state, len(snapshot.messages)) for snapshot in snapshots] == [
        ('complete', 1),
        ('interrupted', 2),
        ('complete', 3),
        ('complete', 4),
    ]


async def test_a_result_that_cannot_be_encoded_is_told_to_the_model(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await finished(client, workers, 'undecodable')
    assert "'undecodable' completed, but its result has no JSON form" in run.output
    assert len(noted(tmp_path, 'undecodable')) == 1


async def test_a_silent_tool_longer_than_the_heartbeat_survives(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await finished(client, workers, 'blocks')
    assert run.output == 'blocked'
    assert len(noted(tmp_path, 'waiting')) == 1


async def test_cancelling_the_workflow_ends_its_tool_and_its_run(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    run = await start(client, workers, 'waits')
    await until(lambda: bool(noted(tmp_path, 'waiting')))
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await run.result()

    # The activity hears of it with its next heartbeat.
    async def ended() -> bool:
        [effect] = await run.store.list_tool_effects(run_id=run.run_id)
        return (effect.status, effect.outcome) == ('failed', 'cancelled')

    await until(ended)
    assert 'run_failed' in [event.kind for event in await run.events()]
    await replay(await run.history(), workers.config)


async def test_continue_and_fork_go_on_from_the_snapshot(client: Client, workers: Workers) -> None:
    workers.start()
    first = await finished(client, workers, 'look', conversation_id='investigation')
    source = SnapshotReference(run_id=first.run_id)

    second = await finished(client, workers, 'pay', continue_from=source)
    assert second.ended.conversation_id == 'investigation'
    latest = await second.store.latest_snapshot(run_id=second.run_id)
    assert latest is not None
    assert len(latest.messages) == 8

    fork = await finished(client, workers, 'pay', fork_from=source)
    assert fork.ended.conversation_id != 'investigation'
    runs = await first.store.list_runs(conversation_id='investigation')
    assert [run.run_id for run in runs] == [first.run_id, second.run_id]
    await replay(await second.history(), workers.config)


async def test_a_snapshot_that_is_not_there_fails_the_workflow_by_name(client: Client, workers: Workers) -> None:
    workers.start()
    run = await start(client, workers, 'look', continue_from=SnapshotReference(run_id='nobody'))
    assert (await failure_of(run)).type == 'SnapshotNotFoundError'


async def test_an_agent_that_the_worker_does_not_have_fails_the_workflow_by_name(
    client: Client, workers: Workers
) -> None:
    workers.start()
    run = await start(client, workers, 'look', agent='nobody')
    error = await failure_of(run)
    assert error.type == 'ConfigurationError'
    assert "no agent named 'nobody'" in error.message


async def test_dependencies_cross_as_json_and_streamed_requests_have_their_boundaries(
    client: Client, workers: Workers
) -> None:
    workers.start()
    deps = {'name': 'Ada', 'since': '2020-01-01T00:00:00Z'}
    run = await finished(client, workers, 'greet', agent='typed', deps=deps)
    assert run.output == 'Ada since 2020'
    assert 'agent__typed__model_request_stream' in await run.activities()
    kinds = [event.kind for event in await run.events()]
    assert kinds.count('model_request_completed') == 2
    assert len(await run.store.list_snapshots(run_id=run.run_id)) == 2
    await replay(await run.history(), workers.config)


async def test_dependencies_that_do_not_fit_fail_the_workflow_by_name(client: Client, workers: Workers) -> None:
    workers.start()
    error = await failure_of(await start(client, workers, 'greet', agent='typed', deps={'name': 'Ada'}))
    assert error.type == 'ConfigurationError'
    assert "agent 'typed' do not fit" in error.message


async def test_usage_limits_end_the_run(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await start(client, workers, 'look pay pay', usage_limits=UsageLimits(request_limit=2))
    assert 'UsageLimitExceeded' in str(await failure_of(run))
    assert len(noted(tmp_path, 'paid')) == 1
    assert (await run.events())[-1].kind == 'run_failed'


async def test_a_run_id_that_is_taken_fails_the_workflow_by_name(client: Client, workers: Workers) -> None:
    workers.start(settings={'run_id': 'once'})
    first = await start(client, workers, 'look', settings={'run_id': 'once'})
    await first.handle.result()
    second = await start(client, workers, 'look', settings={'run_id': 'once'})
    error = await failure_of(second)
    assert error.type == 'DuplicateRunError'
    assert "'once' is already registered" in error.message


async def test_a_reset_run_meets_the_effects_it_already_did(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    run = await finished(client, workers, 'pay')
    history = await run.history()
    scheduled = [
        event.event_id
        for event in history.events
        if event.HasField('activity_task_scheduled_event_attributes')
        and event.activity_task_scheduled_event_attributes.activity_type.name.endswith('__call_tool')
    ]
    # The workflow task that scheduled the tool: everything from the call on is done again.
    finish = max(
        event.event_id
        for event in history.events
        if event.HasField('workflow_task_completed_event_attributes') and event.event_id < scheduled[0]
    )
    reset = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution={'workflow_id': run.handle.id, 'run_id': run.handle.first_execution_run_id or ''},
            reason='test',
            workflow_task_finish_event_id=finish,
            request_id='reset',
        )
    )
    again = client.get_workflow_handle(run.handle.id, run_id=reset.run_id)
    output = await again.result()
    assert output['output'] == 'paid'
    assert output['run_id'] == run.run_id
    assert len(noted(tmp_path, 'paid')) == 1
    assert len(await run.store.list_runs()) == 1
