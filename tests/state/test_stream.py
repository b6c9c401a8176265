"""Streams and `export_state` (cases 35 to 43)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import RunContext
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    ThinkingPart,
)
from pydantic_ai.models.function import DeltaThinkingPart
from pydantic_ai.tools import Tool

from harness_temporal.errors import RunError, StateError
from harness_temporal.state import HarnessContext
from tests.state.support import Bench, calls, kinds, outcomes, pending, thread, user


class Note(BaseModel):
    text: str


async def note(ctx: RunContext[Any]) -> str:
    await HarnessContext.of(ctx).state.write('acme.note', Note(text='written'), version='1')
    return 'noted'


async def waits() -> str:
    await asyncio.Event().wait()
    return 'never'


async def test_case_35_export_is_always_the_last_whole_boundary() -> None:
    bench = Bench(['so ', *calls('plain', 'safe')], ['do', 'ne'])
    seen: list[list[str]] = []
    async with bench.stream('go', previous_state=thread(user('old'))) as stream:
        seen.append(kinds((await stream.export_state()).message_history))
        async for event in stream:
            exported = kinds((await stream.export_state()).message_history)
            if isinstance(event, FunctionToolResultEvent):
                assert exported[-1] == 'response(text:so ,call:plain,call:safe)'
            if exported != seen[-1]:
                seen.append(exported)
        last = kinds((await stream.export_state()).message_history)
    old, request = 'request(user-prompt:old)', 'request(user-prompt:go)'
    first = 'response(text:so ,call:plain,call:safe)'
    returns = 'request(plain=success,safe=success)'
    assert seen == [
        [old],
        [old, request],
        [old, request, first],
        [old, request, first, returns],
    ]
    assert last == [old, request, first, returns, 'response(text:done)']


async def test_case_36_first_of_two_results_is_not_exported_alone() -> None:
    bench = Bench(calls('plain', 'waits'), tools=[Tool(waits)])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, FunctionToolResultEvent):
                assert event.part.tool_call_id == 'plain'
                assert outcomes(await stream.export_state()) == {}
                break


async def test_case_37_write_of_a_running_tool_is_exported_before_its_return() -> None:
    bench = Bench(calls('note', 'waits'), tools=[Tool(note), Tool(waits)])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, FunctionToolResultEvent):
                state = await stream.export_state()
                break
    assert state.agent_context_state.entries['acme.note'].data == {'text': 'written'}
    assert outcomes(state) == {}


async def test_case_38_leaving_mid_token_keeps_the_text_so_far() -> None:
    bench = Bench([DeltaThinkingPart(content='hmm'), 'hel', 'lo', ' there'])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, PartDeltaEvent):
                break
    assert stream.result is None
    assert kinds((await stream.export_state()).message_history) == [
        'request(user-prompt:go)',
        'response!interrupted(thinking:hmm,text:hello)',
    ]


async def test_case_38_leaving_before_anything_was_consumed_keeps_the_state_as_it_was() -> None:
    state = pending('safe')
    async with Bench().stream('go', previous_state=state) as stream:
        pass
    assert await stream.export_state() == state


async def test_case_38_error_of_the_consumer_ends_the_run() -> None:
    bench = Bench(['hel', 'lo'])
    stream = bench.stream('go')
    with pytest.raises(KeyError):
        async with stream:
            async for event in stream:
                if isinstance(event, PartStartEvent):
                    raise KeyError('mine')
    assert kinds((await stream.export_state()).message_history)[-1] == 'response!interrupted(text:hel)'


async def test_case_39_leaving_after_the_first_of_two_results_closes_the_other() -> None:
    bench = Bench(calls('plain', 'waits'), tools=[Tool(waits)])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, FunctionToolResultEvent):
                break
    state = await stream.export_state()
    assert kinds(state.message_history)[-1] == 'request!interrupted(plain=success,waits=unknown)'


async def test_case_40_cancelling_mid_token_gives_a_cancelled_result() -> None:
    bench = Bench([DeltaThinkingPart(content='one'), 'hel', 'lo'])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                stream.cancel()
    assert stream.result.status == 'cancelled'
    assert kinds(stream.result.state.message_history)[-1] == 'response!interrupted(thinking:one,text:hel)'


async def test_case_40_cancelling_during_thinking_drops_it() -> None:
    bench = Bench([DeltaThinkingPart(content='one'), 'hello'])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(event.part, ThinkingPart):
                stream.cancel()
    assert kinds(stream.result.state.message_history) == ['request(user-prompt:go)']


async def test_case_40_cancelling_a_running_tool_closes_its_call() -> None:
    bench = Bench(calls('waits'), tools=[Tool(waits)])
    async with bench.stream('go') as stream:
        async for event in stream:
            if isinstance(event, FunctionToolCallEvent):
                stream.cancel()
    assert (stream.result.status, outcomes(stream.result.state)) == ('cancelled', {'waits': 'unknown'})


async def test_case_41_cancelling_before_the_start_leaves_the_state_as_it_was() -> None:
    bench = Bench()
    state = pending('safe')
    async with bench.stream('new input', previous_state=state) as stream:
        stream.cancel()
        async for _ in stream:
            pass
    assert (stream.result.status, stream.result.state) == ('cancelled', state)
    assert (bench.ran, bench.model.requests) == ([], 0)


async def test_case_42_stream_is_one_run_with_one_consumer() -> None:
    bench = Bench('hello')
    stream = bench.stream('go')
    with pytest.raises(StateError) as not_entered:
        await stream.export_state()
    with pytest.raises(RunError) as not_iterable:
        aiter(stream)
    with pytest.raises(RunError) as no_context:
        _ = stream.context
    async with stream:
        assert stream.context.thread_id.startswith('thread_')
        async for _ in stream:
            with pytest.raises(RunError) as second_consumer:
                aiter(stream)
    with pytest.raises(RunError) as second_entry:
        async with stream:
            pass
    assert [caught.value.code for caught in (not_entered, not_iterable, no_context)] == ['run_not_active'] * 3
    assert [caught.value.code for caught in (second_consumer, second_entry)] == ['run_stream_reused'] * 2
    assert stream.result.output == 'hello'
    assert bench.model.requests == 1


async def test_case_43_after_the_end_the_export_is_the_result_s_state() -> None:
    bench = Bench(calls('plain'), 'done')
    async with bench.stream('go') as stream:
        async for _ in stream:
            pass
        assert await stream.export_state() == stream.result.state
    assert await stream.export_state() == stream.result.state
    assert stream.outcome == stream.result


async def test_task_that_is_cancelled_leaves_a_state_to_export() -> None:
    bench = Bench(calls('plain', 'waits'), tools=[Tool(waits)])
    stream, running = bench.stream('go'), asyncio.Event()

    async def consume() -> None:
        async with stream:
            async for event in stream:
                if isinstance(event, FunctionToolResultEvent):
                    running.set()

    task = asyncio.create_task(consume())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.result is None
    assert outcomes(await stream.export_state()) == {'plain': 'success: plain 1', 'waits': 'unknown'}
