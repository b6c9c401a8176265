"""What a person sees of threads in the Temporal UI, and finds them by."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.tools import DeferredToolResults
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client

from harness_temporal.hosting.namespace import set_up
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.threads import HarnessThread, HarnessThreads, PendingCall, ThreadOptions
from harness_temporal.temporal.threads.signs import details
from harness_temporal.temporal.threads.turns import Turns
from harness_temporal.temporal.threads.values import Turn
from harness_temporal.temporal.visibility import attributes
from tests.temporal.processes import Workers, replay_all
from tests.temporal.runs import until
from tests.temporal.threads import legs, new_id

pytestmark = pytest.mark.temporal


async def set_for(thread: HarnessThread) -> dict[str, Any]:
    described = await thread.handle.describe()
    return {pair.key.name: pair.value for pair in described.typed_search_attributes if pair.key.name != 'BuildIds'}


async def test_threads_are_found_by_agent_conversation_status_and_what_they_wait_for(
    client: Client, workers: Workers
) -> None:
    await set_up(client)
    workers.start()
    # So small that each turn goes on in a workflow run of its own.
    options = ThreadOptions(history_budget=HistoryBudget(events=1))
    threads = HarnessThreads(
        client, agent='scripted', task_queue=workers.task_queue, options=options, search_attributes=True
    )
    idle, asking, closed = [await threads.open(new_id()) for _ in range(3)]
    known = {'HarnessAgent': 'scripted', 'HarnessConversation': idle.thread_id}
    assert await set_for(idle) == {**known, 'HarnessStatus': 'idle', 'HarnessWaitingForApproval': False}
    await idle.send('look')
    await idle.send('look')
    await asking.send('asks_once+elsewhere')
    await closed.close()
    await closed.result()

    assert await set_for(idle) == {**known, 'HarnessStatus': 'idle', 'HarnessWaitingForApproval': False}
    approval, outside = (call.tool_call_id for call in await asking.approvals())
    ours = ', '.join(f"'{thread.thread_id}'" for thread in (idle, asking, closed))

    async def found(condition: str) -> list[str]:
        newest = "ExecutionStatus != 'ContinuedAsNew'"
        query = f"HarnessAgent = 'scripted' AND HarnessConversation IN ({ours}) AND {newest} AND {condition}"
        return [item.id async for item in client.list_workflows(query)]

    async def all_are_listed() -> bool:
        return await found("HarnessStatus = 'closed'") == [closed.handle.id] and await found(waiting) != []

    waiting = 'HarnessWaitingForApproval = true'
    await until(all_are_listed)
    assert await found(waiting) == [asking.handle.id]
    assert await found("HarnessStatus = 'suspended'") == [asking.handle.id]
    await asking.resolve(DeferredToolResults(approvals={approval: True}))
    assert await set_for(asking) == {
        'HarnessAgent': 'scripted',
        'HarnessConversation': asking.thread_id,
        'HarnessStatus': 'suspended',
        'HarnessWaitingForApproval': False,
    }
    await asking.resolve(DeferredToolResults(calls={outside: 'done'}), wait='answered')
    # Who answers has done its first workflow task: the history of one that has none cannot be replayed.
    assert [(await thread.status()).state for thread in (idle, asking)] == ['idle', 'idle']
    runs = await legs(client, idle.handle)
    assert len(runs) >= 4
    changes = [
        event
        for run in runs
        for event in run.events
        if event.HasField('upsert_workflow_search_attributes_event_attributes')
    ]
    assert len(changes) == 4, 'running and idle for each turn: what is set goes along'
    await replay_all([*runs, *await legs(client, asking.handle)], workers.config)


async def test_the_details_say_what_waits_and_what_to_do_above_the_steps(client: Client, workers: Workers) -> None:
    workers.start()
    threads = HarnessThreads(client, agent='scripted', task_queue=workers.task_queue)
    thread = await threads.open(new_id())

    async def shown() -> list[str]:
        metadata = await thread.handle.query('__temporal_workflow_metadata', result_type=WorkflowMetadata)
        return metadata.current_details.splitlines()

    reply = await thread.send('asks_once+elsewhere')
    await thread.send('look', wait='accepted')
    approval, outside = (call.tool_call_id for call in reply.pending)
    approve = f'Decide with `harness-temporal approve {thread.thread_id} CALL`, or `deny`.'
    answer = f'Give a result with `harness-temporal threads answer {thread.thread_id} CALL JSON`.'
    assert (await shown())[:7] == [
        '**waiting for approval** · turn 1 · 1 in the queue',
        '',
        '| call | | waits for | until |',
        '| --- | --- | --- | --- |',
        f'| `{approval}` | `asks_once()` | approval |  |',
        f'| `{outside}` | `elsewhere()` | a result from outside |  |',
        '',
    ]
    assert f'{approve} {answer}' in await shown()
    assert '| 1 | `asks_once()` | asked for approval |' in await shown()
    await thread.resolve(DeferredToolResults(approvals={approval: True}))
    assert f'| `{approval}` | `asks_once()` | nothing, it is answered |  |' in await shown()
    assert answer in await shown()
    await thread.resolve(DeferredToolResults(calls={outside: 'done'}), wait='answered')
    await until(lambda: has_ended(thread, turn=2))
    assert (await shown())[0] == '**idle** · turn 2 answered'


async def has_ended(thread: HarnessThread, *, turn: int) -> bool:
    status = await thread.status()
    return status.state == 'idle' and status.turn is not None and status.turn.turn == turn


def test_details_stay_a_table_whatever_a_model_or_an_error_says() -> None:
    call = PendingCall(
        tool_call_id='a|b',
        tool='send',
        kind='approval',
        arguments={'text': 'one\n| two |'},
        metadata={},
        since=datetime(2026, 1, 1, tzinfo=UTC),
        deadline=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        answered=False,
    )
    turn = Turn(number=1, key='k', digest='', prompt=None, status='failed', error_type='ValueError', error='a\nb')
    shown = details('thread_1', 'waiting_for_approval', Turns(ThreadOptions(), [turn], last_number=1), [call])
    lines = shown.splitlines()
    assert lines[0] == '**waiting for approval** · turn 1 failed · `ValueError: a b`'
    assert lines[4] == r'| `a\|b` | `send(text="one\n\| two \|")` | approval | 2026-01-02 03:04+00:00 |'


def test_attributes_are_cut_to_what_servers_take() -> None:
    opening = attributes.at_opening('a' * 300, 'thread_' + 'b' * 300)
    assert {len(str(pair.value)) for pair in opening if pair.key in (attributes.AGENT, attributes.CONVERSATION)} == {
        255
    }
