"""Go on from where a run stood: after a termination, a failure, a suspension, and on another thread."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError

from harness_temporal import DeferredToolResume, HarnessClient, HarnessState
from harness_temporal.temporal import AgentRunOutput, CarriedState
from harness_temporal.temporal.client import AgentRunHandle
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay
from tests.temporal.runs import Run, start, until
from tests.temporal.test_agent_run import failure_of

pytestmark = pytest.mark.temporal


@pytest.fixture
def harness(client: Client, workers: Workers) -> HarnessClient:
    return HarnessClient(client, agent='scripted', task_queue=workers.task_queue)


async def result_of(handle: AgentRunHandle, workers: Workers) -> AgentRunOutput:
    ended = await handle.result()
    await replay(await handle.fetch_history(), workers.config)
    return ended


async def failure(handle: AgentRunHandle, run: Run) -> str:
    error = await failure_of(Run(handle, run.agent, run.store))
    assert error.type is not None
    return error.type


async def terminated_in_a_tool(
    client: Client, workers: Workers, tmp_path: Path, prompt: str, **settings: object
) -> Run:
    """Run until `pay_when_told` has had its effect and waits, and terminate the workflow there."""
    run = await start(client, workers, prompt, **settings)
    await until(lambda: (tmp_path / 'paid').exists())

    async def settled() -> bool:
        # What runs beside it has ended.
        return len(await run.store.list_unresolved_tool_effects(run_id=run.run_id)) == 1

    await until(settled)
    await run.handle.terminate()
    return run


async def test_a_terminated_run_goes_on_from_its_last_response_and_the_ledger(
    client: Client, workers: Workers, harness: HarnessClient, tmp_path: Path
) -> None:
    workers.start()
    run = await terminated_in_a_tool(client, workers, tmp_path, 'look look+pay_when_told look')
    assert len(noted(tmp_path, 'looked')) == 2

    ended = await result_of(await harness.resume(run.run_id), workers)

    assert ended.status == 'completed'
    looked, recorded, unknown, again = ended.output.split(' | ')
    assert (looked, recorded, again) == ('looked', 'looked', 'looked')
    assert 'interrupted before a result' in unknown, 'not run again: nobody declared that it may be'
    assert len(noted(tmp_path, 'looked')) == 3, 'the call with a recorded outcome did not run again'
    assert len(noted(tmp_path, 'paid')) == 1
    assert ended.conversation_id == (await run.store.list_events(run_id=run.run_id))[0].conversation_id
    pay = (await run.store.list_tool_effects(run_id=run.run_id))[-1]
    assert (pay.tool_name, pay.value) == ('pay_when_told', None)

    with pytest.raises(WorkflowAlreadyStartedError):
        await harness.resume(run.run_id)


async def test_a_policy_can_have_the_open_calls_run_again(
    client: Client, workers: Workers, harness: HarnessClient, tmp_path: Path
) -> None:
    workers.start()
    run = await terminated_in_a_tool(client, workers, tmp_path, 'look pay_when_told')
    handle = await harness.resume(run.run_id, tool_recovery='always')
    await until(lambda: len(noted(tmp_path, 'paid')) == 2)
    (tmp_path / 'told').touch()
    ended = await result_of(handle, workers)
    assert ended.output == 'looked | paid'
    assert len(noted(tmp_path, 'paid')) == 2


async def test_what_is_running_or_has_lost_its_response_is_not_resumed(
    client: Client, workers: Workers, harness: HarnessClient, tmp_path: Path
) -> None:
    workers.start(boundaries='dedicated')
    run = await start(client, workers, 'look pay_when_told', boundaries='dedicated')
    await until(lambda: (tmp_path / 'paid').exists())
    assert await failure(await harness.resume(run.run_id), run) == 'RunActiveError'
    await run.handle.terminate()
    # Dedicated boundaries keep no response before its tools have settled, unless the frontier is captured.
    assert await failure(await harness.resume(run.run_id), run) == 'FrontierLostError'
    assert await failure(await harness.resume('nobody:0'), run) == 'SnapshotNotFoundError'
    assert len(noted(tmp_path, 'paid')) == 1


async def test_a_failed_run_goes_on(client: Client, workers: Workers, harness: HarnessClient, tmp_path: Path) -> None:
    workers.start()
    run = await start(client, workers, 'look broken look')
    await failure_of(run)
    ended = await result_of(await harness.resume(run.run_id), workers)
    looked, unknown, again = ended.output.split(' | ')
    assert (looked, again) == ('looked', 'looked')
    assert 'interrupted' in unknown
    assert len(noted(tmp_path, 'broken')) == 1


async def test_answers_go_into_a_suspended_run(
    client: Client, workers: Workers, harness: HarnessClient, tmp_path: Path
) -> None:
    workers.start()
    run = await start(client, workers, 'asks_once+elsewhere+look')
    suspended = await run.result()
    assert suspended.status == 'suspended'

    snapshot = await run.store.latest_snapshot(run_id=run.run_id, include_interrupted=True)
    assert snapshot is not None
    asked = {part.tool_name: part for part in snapshot.messages[1].parts if hasattr(part, 'tool_call_id')}
    requests = DeferredToolRequests(calls=[asked['elsewhere']], approvals=[asked['asks_once']])  # pyright: ignore[reportArgumentType]
    approve, outside = asked['asks_once'].tool_call_id, asked['elsewhere'].tool_call_id  # pyright: ignore

    wrong = DeferredToolResume(requests, DeferredToolResults(approvals={approve: True}))
    handle = await harness.resume(run.run_id, answers=wrong)
    assert await failure(handle, run) == 'DeferredResumeError'
    assert not noted(tmp_path, 'paid')

    answers = DeferredToolResume(
        requests, DeferredToolResults(approvals={approve: True}, calls={outside: 'done outside'})
    )
    ended = await result_of(await harness.resume(run.run_id, answers=answers), workers)
    assert sorted(ended.output.split(' | ')) == ['done outside', 'looked', 'paid with approval']
    assert len(noted(tmp_path, 'paid')) == len(noted(tmp_path, 'looked')) == 1

    denied = DeferredToolResume(
        requests, DeferredToolResults(approvals={approve: ToolDenied('no')}, calls={outside: None})
    )
    state = suspended.state
    assert state is not None
    other = await harness.start(None, state=state, answers=denied)
    assert 'no' in (await result_of(other, workers)).output
    assert len(noted(tmp_path, 'paid')) == 1


async def test_a_thread_goes_from_run_to_run_as_its_state(
    client: Client, workers: Workers, harness: HarnessClient
) -> None:
    workers.start()
    first = await result_of(await harness.start('count'), workers)
    assert first.state is not None
    assert first.state.history is None, 'small enough to go by value'
    second = await result_of(await harness.start('count count', state=first.state), workers)
    assert second.output == 'counted 2 | counted 3'
    assert second.conversation_id == first.conversation_id
    assert second.state is not None
    state = await second.state.load(workers.config.open_store())
    assert state.thread_id == first.state.without_history().thread_id == second.conversation_id
    assert len(state.message_history) == 4 + 6

    large = await result_of(await harness.start('recite recite', state=state), workers)
    assert large.state is not None
    assert large.state.history is not None, 'its history stays in the store'
    third = await result_of(await harness.start('count', state=large.state), workers)
    assert third.output == 'counted 4'

    forked = await result_of(await harness.fork(first.run_id, prompt='look'), workers)
    assert forked.output == 'looked'
    assert forked.conversation_id not in (None, first.conversation_id)
    assert forked.state is not None
    assert len((await forked.state.load(workers.config.open_store())).message_history) == 4 + 4


async def test_what_is_no_state_and_no_answer_fails_by_name(
    client: Client, workers: Workers, harness: HarnessClient
) -> None:
    workers.start()
    damaged = await start(client, workers, 'look', state=CarriedState(document={'schema_version': '9'}))
    assert (await failure_of(damaged)).type == 'StateEnvelopeError'
    answers = await start(
        client, workers, 'look', state=CarriedState(document=HarnessState.new()), answers={'results': 'all good'}
    )
    assert (await failure_of(answers)).type == 'DeferredResumeError'
    nothing = await start(client, workers, None)
    assert (await failure_of(nothing)).type == 'InputError'
