"""Threads: one workflow for each, that takes messages and answers them in order."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pydantic_ai.durable_exec.temporal import stream_agent_events
from pydantic_ai.tools import DeferredToolResults, ToolDenied
from temporalio.client import Client

from harness_temporal.errors import ThreadError
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.threads import ApprovalPolicy, HarnessThread, HarnessThreads, ThreadOptions
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay_all, wait_until_dead
from tests.temporal.runs import until
from tests.temporal.threads import REMIND, TOPIC, legs, new_id

pytestmark = pytest.mark.temporal


@pytest.fixture
def threads(client: Client, workers: Workers) -> HarnessThreads:
    return HarnessThreads(client, agent='scripted', task_queue=workers.task_queue)


async def replayed(client: Client, workers: Workers, thread: HarnessThread) -> int:
    """Replay the workflow runs that the thread went through, and return how many those are."""
    histories = await legs(client, thread.handle)
    await replay_all(histories, workers.config)
    return len(histories)


async def test_messages_are_answered_once_each_and_in_the_order_of_acceptance(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    thread = await threads.open(new_id(), name='*Orders*')
    assert await (await thread.handle.describe()).static_summary() == '`*Orders*`'
    first = await thread.send('count', key='a', wait='accepted')
    assert (first.turn, first.output) == (1, None)
    keys = ['a', *(f'k{number}' for number in range(6))]
    replies = await asyncio.gather(*(thread.send('count', key=key) for key in keys))
    assert replies[0].turn == 1
    by_turn = sorted(replies, key=lambda reply: reply.turn)
    assert [reply.output for reply in by_turn] == [f'counted {number}' for number in range(1, 8)]
    status = await thread.status()
    assert (status.state, status.queued, status.name) == ('idle', 0, '*Orders*')
    assert status.usage.requests == 14
    await replayed(client, workers, thread)


async def refused(awaitable: object) -> str:
    with pytest.raises(ThreadError) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value.code


async def test_what_cannot_be_taken_is_refused_at_once(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    small = HarnessThreads(
        client,
        agent='scripted',
        task_queue=workers.task_queue,
        options=ThreadOptions(max_prompt_bytes=40, max_queued=1),
    )
    thread = await small.open(new_id())
    await thread.send('asks_once+asks_once+elsewhere', key='a')
    before = (await thread.handle.describe()).history_length

    assert await refused(thread.send(' ')) == 'prompt_empty'
    assert await refused(thread.send('ü' * 21)) == 'prompt_too_large'
    assert await refused(thread.send('look', key='a')) == 'key_reused'
    assert await refused(thread.send('look', key='')) == 'key_invalid'
    assert await refused(thread.reply('b')) == 'key_unknown'
    assert await refused(thread.rename('')) == 'name_invalid'
    assert await refused(thread.cancel(turn=2)) == 'nothing_to_cancel'
    first, _, outside = (call.tool_call_id for call in await thread.approvals())

    async def resolve(approvals: dict[str, object] | None = None, calls: dict[str, object] | None = None) -> str:
        return await refused(thread.resolve(DeferredToolResults(approvals=approvals or {}, calls=calls or {})))  # pyright: ignore

    assert await resolve() == 'answers_empty'
    assert await resolve({'nobody': True}) == 'call_unknown'
    assert await resolve({outside: True}) == 'call_of_other_kind'
    assert await resolve({first: True}, {first: 1}) == 'call_answered_twice'
    assert await resolve({first: True, 'nobody': True}) == 'call_unknown'
    with pytest.raises(ThreadError) as caught:
        await thread.resolve(DeferredToolResults(approvals={first: True}, metadata={'nobody': {}}))
    assert (caught.value.code, caught.value.details) == ('deferred_metadata_invalid', {'tool_call_id': 'nobody'})
    assert (await thread.handle.describe()).history_length <= before + 3, 'refusals leave nothing in the history'

    await thread.send('look', wait='accepted')
    assert await refused(thread.send('look')) == 'queue_full'
    await thread.resolve(DeferredToolResults(approvals={first: True}))
    assert await resolve({first: True}) == 'call_already_answered'
    await replayed(client, workers, thread)


async def test_it_waits_for_approvals_without_workers_and_takes_answers_in_parts(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    thread = await threads.open(new_id())
    reply = await thread.send('asks_once+elsewhere+look', key='a')
    assert (reply.status, reply.output) == ('waiting_for_approval', None)
    assert [(call.tool, call.kind, dict(call.metadata), call.answered) for call in reply.pending] == [
        ('asks_once', 'approval', {'why': 'it costs'}, False),
        ('elsewhere', 'external', {'where': 'outside'}, False),
    ]
    approval, outside = (call.tool_call_id for call in reply.pending)
    later = await thread.send('count', wait='accepted')
    workers.kill_all()
    workers.start()

    status = await thread.status()
    assert (status.state, status.queued) == ('waiting_for_approval', 1)
    assert [(step.tools, step.text) for step in await thread.steps()] == [(['asks_once', 'elsewhere', 'look'], None)]
    part = await thread.resolve(DeferredToolResults(calls={outside: 'done outside'}), wait='answered')
    assert [call.answered for call in part.pending] == [False, True]
    assert not noted(tmp_path, 'paid')
    ended = await thread.resolve(DeferredToolResults(approvals={approval: True}), wait='answered')
    assert sorted(ended.output.split(' | ')) == ['done outside', 'looked', 'paid with approval']
    assert (ended.turn, ended.usage.requests) == (1, 2)
    assert await thread.approvals() == []
    assert (await thread.reply(later.key)).output == 'counted 1'
    assert len(noted(tmp_path, 'paid')) == len(noted(tmp_path, 'looked')) == 1
    history = await thread.history(workers.config.open_store())
    assert len(history) == 4 + 4
    await replayed(client, workers, thread)


async def test_a_late_answer_is_not_taken_for_one_to_a_later_call_with_the_same_id(
    workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    thread = await threads.open(new_id())
    first = await thread.send('asks_once')
    denied = DeferredToolResults(approvals={call.tool_call_id: False for call in first.pending})
    assert (await thread.resolve(denied, run_id=first.run_id, wait='answered')).status == 'answered'
    second = await thread.send('asks_once')
    assert [call.tool_call_id for call in first.pending] == [call.tool_call_id for call in second.pending]
    approved = DeferredToolResults(approvals={call.tool_call_id: True for call in second.pending})
    assert await refused(thread.resolve(approved, run_id=first.run_id)) == 'not_waiting'
    assert not noted(tmp_path, 'paid')
    assert (await thread.resolve(approved, run_id=second.run_id, wait='answered')).output == 'paid with approval'


async def test_nothing_is_lost_or_done_twice_when_workers_die_in_a_turn(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    dying = workers.start(kill_at='after_finish')
    thread = await threads.open(new_id())
    sent = [asyncio.create_task(thread.send(prompt)) for prompt in ('pay look', 'pay', 'count')]
    await wait_until_dead(dying)
    workers.start()
    outputs = {reply.output for reply in await asyncio.gather(*sent)}
    assert outputs == {'paid | looked', 'paid', 'counted 1'}
    assert len(noted(tmp_path, 'paid')) == 2
    await replayed(client, workers, thread)


async def test_a_turn_is_cancelled_and_the_thread_lives_on(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    thread = await threads.open(new_id())
    running = await thread.send('pay waits', wait='accepted')
    await until(lambda: (tmp_path / 'waiting').exists())
    queued = await thread.send('pay', wait='accepted')
    assert (await thread.cancel(turn=queued.turn)).status == 'cancelled'
    ended = await thread.cancel()
    assert (ended.turn, ended.status, ended.key) == (1, 'cancelled', running.key)
    assert ended.usage.requests == 2
    after = await thread.send('look')
    told, looked = after.output.split(' | ')
    assert 'interrupted before a result' in told
    assert looked == 'looked'
    assert await refused(thread.cancel()) == 'nothing_to_cancel'

    waiting = await thread.send('asks_once+elsewhere')
    approval, outside = (call.tool_call_id for call in waiting.pending)
    await thread.resolve(DeferredToolResults(approvals={approval: True}))
    assert (await thread.cancel()).status == 'cancelled'
    assert await refused(thread.resolve(DeferredToolResults(calls={outside: 1}))) == 'not_waiting'
    told = (await thread.send('look')).output.split(' | ')
    assert [text.startswith('The turn was cancelled') for text in told] == [True, True, False]
    assert len(noted(tmp_path, 'paid')) == 1, 'an approval of a turn that was cancelled is none'
    await replayed(client, workers, thread)


async def test_a_failed_turn_is_told_and_the_next_one_goes_on_from_where_it_stood(
    client: Client, workers: Workers, threads: HarnessThreads, tmp_path: Path
) -> None:
    workers.start()
    thread = await threads.open(new_id())
    await thread.send('count')
    failed = await thread.send('look count pay+broken')
    assert (failed.status, failed.error_type, failed.error) == ('failed', 'RuntimeError', 'out of order')
    assert failed.usage.requests == 3
    status = await thread.status()
    assert (status.state, status.turn) == ('idle', failed)

    after = await thread.send('count')
    assert after.output.endswith('| counted 3'), 'what the failed run wrote to the state is there'
    assert len(noted(tmp_path, 'paid')) == len(noted(tmp_path, 'looked')) == len(noted(tmp_path, 'broken')) == 1
    contents = [str(part) for message in await thread.history(workers.config.open_store()) for part in message.parts]
    assert sum("content='paid'" in text for text in contents) == 1, 'the ledger knew what the call had given'

    await replayed(client, workers, thread)


async def test_going_on_in_other_workflow_runs_loses_nothing(client: Client, workers: Workers, tmp_path: Path) -> None:
    workers.start()
    threads = HarnessThreads(
        client,
        agent='scripted',
        task_queue=workers.task_queue,
        options=ThreadOptions(history_budget=HistoryBudget(events=1)),
    )
    thread = await threads.open(new_id())
    replies = await asyncio.gather(*(thread.send('count pay look', key=f'k{number}') for number in range(4)))
    ordered = sorted(replies, key=lambda reply: reply.turn)
    assert [reply.output for reply in ordered] == [f'counted {number} | paid | looked' for number in range(1, 5)]
    assert {reply.status for reply in replies} == {'answered'}
    again = await asyncio.gather(*(thread.reply(f'k{number}') for number in range(4)))
    assert [reply.output for reply in again] == [reply.output for reply in replies]
    assert len(noted(tmp_path, 'paid')) == 4
    assert await replayed(client, workers, thread) > 4
    assert (await thread.status()).usage.requests == 4 * 4


async def test_a_turn_that_fails_after_an_approval_does_not_repeat_what_was_approved(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    threads = HarnessThreads(client, agent='streaming', task_queue=workers.task_queue)
    thread = await threads.open(new_id())
    waiting = await thread.send('breaks_once_approved+pays_once_approved')
    approvals = {call.tool_call_id: True for call in waiting.pending}
    failed = await thread.resolve(DeferredToolResults(approvals={**approvals}), wait='answered')
    assert (failed.status, failed.error_type) == ('failed', 'RuntimeError')
    after = await thread.send('look')
    assert after.status == 'answered', after.error
    assert len(noted(tmp_path, 'broken')) == len(noted(tmp_path, 'paid')) == 1
    await replayed(client, workers, thread)


async def test_what_nobody_answers_is_denied_in_time_and_somebody_is_reminded_before(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    policy = ApprovalPolicy(timeout=timedelta(seconds=3), remind_every=timedelta(seconds=1), reminder_activity=REMIND)
    threads = HarnessThreads(
        client, agent='scripted', task_queue=workers.task_queue, options=ThreadOptions(approvals=policy)
    )
    thread = await threads.open(new_id())
    waiting = await thread.send('asks_once+elsewhere', key='a')
    asked, outside = waiting.pending
    assert asked.deadline == asked.since + timedelta(seconds=3)
    await thread.resolve(DeferredToolResults(calls={outside.tool_call_id: 'done'}))

    async def answered() -> bool:
        return (await thread.reply('a')).status == 'answered'

    await until(answered)
    assert 'Nobody answered within 0:00:03' in (await thread.reply('a')).output
    assert not noted(tmp_path, 'paid')
    # The server fires timers on the second.
    assert json.loads(noted(tmp_path, 'reminded')[0]) == [
        1,
        [['asks_once', 'approval', False], ['elsewhere', 'external', True]],
    ]
    await replayed(client, workers, thread)


async def test_events_of_a_turn_are_read_from_outside_and_the_older_ones_go(client: Client, workers: Workers) -> None:
    workers.start()
    options = ThreadOptions(history_budget=HistoryBudget(events=1))
    threads = HarnessThreads(client, agent='streaming', task_queue=workers.task_queue, options=options)
    thread = await threads.open(new_id())
    offset = 0
    for number in range(3):
        sent = asyncio.create_task(thread.send('look look'))
        events = stream_agent_events(client, thread.handle, TOPIC, from_offset=offset)
        kinds = [getattr(event, 'event_kind', 'result') async for event in events]
        assert kinds.count('function_tool_result') == 2, number
        assert events.result is not None
        assert events.result.output == (await sent).output == 'looked | looked'
        offset = events.offset + 1
    carried = (await legs(client, thread.handle))[-1]
    [payload] = carried.events[0].workflow_execution_started_event_attributes.input.payloads
    assert json.loads(payload.data)['going_on']['stream']['base_offset'] > 0
    await thread.close()
    assert (await thread.result()).turns == 3
    await replayed(client, workers, thread)


async def test_a_closed_thread_answers_what_it_took_and_another_goes_on_with_its_state(
    client: Client, workers: Workers, threads: HarnessThreads
) -> None:
    workers.start()
    thread = await threads.open(new_id())
    sent = [await thread.send(prompt, wait='accepted') for prompt in ('count asks_once', 'count', 'count')]
    await until(lambda: waits(thread))
    await thread.close()
    assert await refused(thread.send('count')) == 'thread_closed'
    assert (await thread.reply(sent[0].key, wait='accepted')).status == 'waiting_for_approval'
    [call] = await thread.approvals()
    replies = [asyncio.create_task(thread.reply(reply.key)) for reply in sent[1:]]
    await thread.resolve(DeferredToolResults(approvals={call.tool_call_id: ToolDenied('not today')}))
    assert [(await reply).output for reply in replies] == ['counted 2', 'counted 3']
    ended = await thread.result()
    assert ended.turns == 3
    assert (await thread.status()).state == 'closed'
    assert await refused(thread.send('count')) == 'thread_closed'
    assert await refused(threads.open(thread.thread_id)) == 'thread_closed'

    other = await threads.open(new_id(), state=ended.state)
    assert (await other.send('count')).output == 'counted 4'
    history = await other.history(workers.config.open_store())
    assert len(history) == 6 + 3 * 4
    await replayed(client, workers, thread)


async def waits(thread: HarnessThread) -> bool:
    return (await thread.status()).state == 'waiting_for_approval'


async def test_an_update_that_is_sent_again_in_the_next_workflow_run_is_done_once(
    client: Client, workers: Workers
) -> None:
    workers.start()
    options = ThreadOptions(history_budget=HistoryBudget(events=1))
    threads = HarnessThreads(client, agent='scripted', task_queue=workers.task_queue, options=options)
    thread = await threads.open(new_id())
    waiting = await thread.send('recite asks_once look', key='a')
    [call] = waiting.pending
    answers = DeferredToolResults(approvals={call.tool_call_id: True})
    await thread.resolve(answers, update_id='r')
    await thread.rename('first', update_id='n')
    assert (await thread.reply('a')).status == 'answered'
    await thread.rename('second')
    await thread.send('look recite look')

    again = await thread.resolve(answers, update_id='r')
    assert again.turn == 2
    await thread.rename('first', update_id='n')
    assert (await thread.status()).name == 'second'
    assert await refused(thread.resolve(answers, update_id='other')) == 'call_already_answered'
    assert await replayed(client, workers, thread) > 3


async def test_many_threads_with_answers_at_random_moments_while_workers_are_replaced(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    first = workers.start()
    threads = HarnessThreads(client, agent='scripted', task_queue=workers.task_queue)
    random = Random(5)
    restarted = asyncio.Event()

    async def talk(number: int) -> list[str]:
        thread = await threads.open(new_id())
        outputs: list[str] = []
        for _ in range(2):
            reply = await thread.send(random.choice(['asks_once', 'count', 'look']))
            if reply.status == 'waiting_for_approval':
                if number % 2:
                    await restarted.wait()
                answers = {call.tool_call_id: random.random() < 0.5 for call in reply.pending}
                reply = await thread.resolve(
                    DeferredToolResults(approvals={**answers}), run_id=reply.run_id, wait='answered'
                )
            assert reply.status == 'answered', reply
            outputs.append(reply.output)
        assert (await thread.status()).queued == 0
        return outputs

    talks = [asyncio.create_task(talk(number)) for number in range(50)]
    await until(lambda: len(noted(tmp_path, 'looked')) > 5)
    workers.start()
    first.terminate()
    restarted.set()
    outputs = [output for talk in await asyncio.gather(*talks) for output in talk]
    assert len(outputs) == 100
    assert outputs.count('paid with approval') == len(noted(tmp_path, 'paid'))
