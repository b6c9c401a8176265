"""What `StepPersistence` writes around a plain run (the step-persistence seed)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests

from harness_temporal import StepPersistence, annotate_tool_effect, tool_idempotency_key
from harness_temporal.errors import (
    ConfigurationError,
    DuplicateRunError,
    InvalidRunIdError,
    NotStorableError,
    SnapshotNotFoundError,
    UnknownToolOutcomeError,
)
from harness_temporal.records import ToolEffectRecord
from harness_temporal.step_persistence import (
    FileStepStore,
    InMemoryStepStore,
    SnapshotSaved,
    SqliteStepStore,
    continue_run,
    fork_run,
    inspect_recovery,
)
from tests.runs.models import Fails, call, scripted


async def the_run(store: InMemoryStepStore) -> str:
    [run] = await store.list_runs()
    return run.run_id


async def kinds(store: InMemoryStepStore, run_id: str) -> list[str]:
    return [event.kind for event in await store.list_events(run_id=run_id)]


def agent_with(store: InMemoryStepStore, *steps: Any, **settings: Any) -> Agent[None, str]:
    return Agent(scripted(*steps), capabilities=[StepPersistence(store=store, **settings)])


# --- events and snapshots ---


async def test_a_run_leaves_its_events_in_order(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('add', a=1)], 'done')

    @agent.tool_plain
    async def add(a: int) -> int:
        return a + 1

    await agent.run('go', conversation_id='c')
    run_id = await the_run(store)
    events = await store.list_events(run_id=run_id)
    assert [(event.kind, event.step_index) for event in events] == [
        ('run_started', 0),
        ('model_request_started', 1),
        ('model_request_completed', 1),
        ('tool_call_started', 1),
        ('tool_call_completed', 1),
        ('model_request_started', 2),
        ('model_request_completed', 2),
        ('run_completed', 2),
    ]
    assert {event.conversation_id for event in events} == {'c'}
    assert [event.seq for event in events] == sorted(event.seq or 0 for event in events)


async def test_a_snapshot_is_saved_when_tools_have_settled_with_their_returns(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look')], 'done')

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    await agent.run('go')
    snapshots = await store.list_snapshots(run_id=await the_run(store))
    assert [(snapshot.step_index, len(snapshot.messages)) for snapshot in snapshots] == [(1, 3), (2, 4)]
    [returned] = snapshots[0].messages[-1].parts
    assert isinstance(returned, ToolReturnPart)
    assert returned.content == 'seen'


async def test_a_stream_that_ends_past_the_last_boundary_is_saved_whole(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look')], 'all done')

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    async with agent.run_stream('go') as result:
        assert (await result.get_output()).strip() == 'all done'
    latest = await store.latest_snapshot(run_id=await the_run(store))
    assert latest is not None
    assert isinstance(latest.messages[-1], ModelResponse)
    assert (await kinds(store, latest.run_id))[-1] == 'run_completed'


async def test_a_failing_model_after_a_clean_cycle_leaves_a_complete_snapshot(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look')], Fails())

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    with pytest.raises(RuntimeError, match='the model is down'):
        await agent.run('go')
    run_id = await the_run(store)
    latest = await store.latest_snapshot(run_id=run_id)
    assert latest is not None
    assert len(latest.messages) == 3, 'prompt, call, return'
    assert (await kinds(store, run_id))[-2:] == ['model_request_failed', 'run_failed']
    assert (await store.list_events(run_id=run_id))[-1].error == 'RuntimeError: the model is down'


async def test_a_crash_in_the_middle_of_a_tool_cycle_is_interrupted_and_off_the_default_path(
    store: InMemoryStepStore,
) -> None:
    agent = agent_with(store, [call('look', 'a')], [call('look', 'b'), call('crash', 'c')])

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    @agent.tool_plain
    async def crash() -> str:
        raise OSError('gone')

    with pytest.raises(OSError, match='gone'):
        await agent.run('go')
    run_id = await the_run(store)
    found = await inspect_recovery(store=store, run_id=run_id)
    assert found.latest is not None
    assert found.latest.state == 'interrupted'
    assert found.settled is not None
    assert len(found.settled.messages) == 3
    assert found.failed_tools == ('crash',)
    assert await continue_run(store, run_id=run_id) == found.settled.messages
    assert await fork_run(store, run_id=run_id, include_interrupted=True) == found.latest.messages


async def test_an_error_before_the_first_response_leaves_nothing_to_continue(store: InMemoryStepStore) -> None:
    agent = agent_with(store, Fails())
    with pytest.raises(RuntimeError):
        await agent.run('go')
    run_id = await the_run(store)
    with pytest.raises(SnapshotNotFoundError, match='no snapshot') as caught:
        await continue_run(store, run_id=run_id)
    assert isinstance(caught.value, LookupError)
    with pytest.raises(SnapshotNotFoundError):
        await continue_run(store, run_id=run_id, include_interrupted=True)


async def test_a_history_that_cannot_be_stored_fails_the_run_and_its_end_is_told(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look', 'a')], [call('handle', 'b')], 'done')

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    @agent.tool_plain
    async def handle() -> Any:
        return {'handle': object()}

    with pytest.raises(NotStorableError, match="tool-return of 'handle'"):
        await agent.run('go')
    run_id = await the_run(store)
    ended = (await store.list_events(run_id=run_id))[-1]
    assert ended.kind == 'run_failed'
    assert 'NotStorableError' in (ended.error or '')
    assert len(await continue_run(store, run_id=run_id)) == 3, 'what was settled before is there'


async def test_the_end_of_a_run_is_told_although_its_history_cannot_be_stored(store: InMemoryStepStore) -> None:
    agent = agent_with(store, Fails())
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('hello')]),
        ModelResponse(parts=[call('handle')]),
        ModelRequest(parts=[ToolReturnPart('handle', {1: 'a', '1': 'b'}, 'call-1')]),
        ModelResponse(parts=[TextPart('hi')]),
    ]
    with pytest.raises(RuntimeError, match='the model is down'):
        await agent.run('go', message_history=history)
    ended = (await store.list_events(run_id=await the_run(store)))[-1]
    assert ended.kind == 'run_failed'
    assert 'its history was not saved' in (ended.error or '')


async def test_capture_frontier_keeps_the_prompt_of_a_failed_first_request(store: InMemoryStepStore) -> None:
    agent = agent_with(store, Fails(), capture_frontier=True)
    with pytest.raises(RuntimeError):
        await agent.run('remember me')
    messages = await continue_run(store, run_id=await the_run(store))
    [prompt] = messages[0].parts
    assert isinstance(prompt, UserPromptPart)
    assert prompt.content == 'remember me'


async def test_capture_frontier_keeps_the_proposed_calls_before_they_run(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look', q='x')], 'done', capture_frontier=True)
    seen: list[ModelMessage] = []

    @agent.tool_plain
    async def look(q: str) -> str:
        seen.extend(await continue_run(store, run_id=await the_run(store), include_interrupted=True))
        return q

    await agent.run('go')
    assert [part.part_kind for part in seen[-1].parts] == ['tool-call']
    states = [
        snapshot.state for snapshot in await store.list_snapshots(run_id=await the_run(store), include_interrupted=True)
    ]
    # The prompt, the proposal, the settled cycle, the same as it is sent on (with its time), and the answer.
    assert states == ['complete', 'interrupted', 'complete', 'complete', 'complete']


async def test_a_history_rewritten_after_the_last_boundary_is_saved_again(store: InMemoryStepStore) -> None:
    @dataclass
    class Redacts(AbstractCapability[None]):
        async def after_run(self, ctx: RunContext[None], *, result: Any) -> Any:
            result.all_messages()[-1].parts[:] = [TextPart('redacted')]
            return result

    # Before the one that rewrites: `after_run` hooks run in reverse order.
    agent = Agent(scripted('secret'), capabilities=[StepPersistence(store=store), Redacts()])
    await agent.run('go')
    snapshots = await store.list_snapshots(run_id=await the_run(store))
    assert [part.content for snapshot in snapshots for part in snapshot.messages[-1].parts] == ['secret', 'redacted']


async def test_what_is_saved_does_not_change_with_the_live_messages(store: InMemoryStepStore) -> None:
    agent = agent_with(store, 'done')
    result = await agent.run('go')
    result.all_messages()[-1].parts[:] = [TextPart('changed later')]
    latest = await store.latest_snapshot(run_id=await the_run(store))
    assert latest is not None
    [part] = latest.messages[-1].parts
    assert isinstance(part, TextPart)
    assert part.content == 'done'


async def test_interrupting_right_after_a_tool_keeps_its_return(store: InMemoryStepStore) -> None:
    @dataclass
    class Stops(AbstractCapability[None]):
        async def before_model_request(
            self, ctx: RunContext[None], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            if ctx.run_step > 1:
                raise KeyError('stop')
            return request_context

    paid: list[int] = []
    agent = Agent(scripted([call('pay')], 'done'), capabilities=[Stops(), StepPersistence(store=store)])

    @agent.tool_plain
    async def pay() -> str:
        paid.append(1)
        return 'receipt'

    with pytest.raises(KeyError):
        await agent.run('go')
    history = await continue_run(store, run_id=await the_run(store))
    assert any(isinstance(part, ToolReturnPart) for part in history[-1].parts)

    resumed = Agent(scripted('done'), tools=[pay])
    assert (await resumed.run(message_history=history)).output == 'done'
    assert paid == [1]


async def test_listeners_hear_of_each_saved_snapshot(store: InMemoryStepStore) -> None:
    heard: list[SnapshotSaved] = []
    hooks = Hooks[None]()

    @hooks.on.event(SnapshotSaved)
    async def saved(ctx: RunContext[None], event: SnapshotSaved) -> None:
        heard.append(event)

    agent = Agent(scripted([call('look')], 'done'), capabilities=[StepPersistence(store=store), hooks])

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    await agent.run('go', conversation_id='c')
    run_id = await the_run(store)
    assert [(event.persistence_run_id, event.conversation_id, event.step_index, event.state) for event in heard] == [
        (run_id, 'c', 1, 'complete'),
        (run_id, 'c', 2, 'complete'),
    ]


# --- the effect ledger ---


@pytest.mark.parametrize(
    ('error', 'outcome'),
    [
        (ToolFailed('no'), 'failed'),
        (ApprovalRequired(), 'approval_required'),
        (CallDeferred(), 'deferred'),
    ],
)
async def test_control_flow_ends_a_call_with_an_outcome(
    store: InMemoryStepStore, error: Exception, outcome: str
) -> None:
    agent = Agent(
        scripted([call('ask')], 'done'),
        capabilities=[StepPersistence(store=store)],
        output_type=[str, DeferredToolRequests],
    )

    @agent.tool_plain
    async def ask() -> str:
        raise error

    await agent.run('go')
    [effect] = await store.list_tool_effects(run_id=await the_run(store))
    assert (effect.status, effect.outcome) == ('failed', outcome)


async def test_a_retry_request_and_the_next_call_are_two_entries(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('look', 'same')], [call('look', 'same')], 'done')
    asked: list[int] = []

    @agent.tool_plain
    async def look() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise ModelRetry('again')
        return 'seen'

    await agent.run('go')
    run_id = await the_run(store)
    assert [effect.outcome for effect in await store.list_tool_effects(run_id=run_id)] == ['retry', 'returned']
    newest = await store.get_tool_effect(run_id=run_id, tool_call_id='same')
    assert newest is not None
    assert newest.outcome == 'returned'


@pytest.mark.parametrize('call_id', ['', 'repeated'])
async def test_calls_of_two_steps_with_the_same_or_an_empty_id_are_kept_apart(
    store: InMemoryStepStore, call_id: str
) -> None:
    agent = agent_with(store, [call('look', call_id)], [call('look', call_id)], 'done')

    @agent.tool_plain
    async def look() -> str:
        return 'seen'

    await agent.run('go')
    effects = await store.list_tool_effects(run_id=await the_run(store))
    assert [(effect.tool_call_id, effect.status, effect.step_index) for effect in effects] == [
        (call_id, 'completed', 1),
        (call_id, 'completed', 2),
    ]


async def test_two_calls_of_one_response_with_the_same_id_run_nothing(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('pay', 'dup'), call('look', 'dup')], 'done')
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append('pay')
        return 'paid'

    @agent.tool_plain
    async def look() -> str:
        ran.append('look')
        return 'seen'

    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go')
    run_id = await the_run(store)
    assert ran == []
    assert (await kinds(store, run_id))[-1] == 'run_failed'
    assert await store.list_tool_effects(run_id=run_id) == []


async def test_malformed_arguments_are_kept_as_they_are_and_run_nothing(store: InMemoryStepStore) -> None:
    from pydantic_ai.messages import ToolCallPart

    agent = agent_with(store, [ToolCallPart('add', '{"a": ', tool_call_id='x')], 'done')

    @agent.tool_plain
    async def add(a: int) -> int:
        raise AssertionError('must not run')

    await agent.run('go')
    latest = await store.latest_snapshot(run_id=await the_run(store))
    assert latest is not None
    [asked] = latest.messages[1].parts
    assert isinstance(asked, ToolCallPart)
    assert asked.args == '{"a": '


async def test_annotations_stay_through_the_end_of_the_call(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('label', issue=7)], 'done')

    @agent.tool
    async def label(ctx: RunContext[None], issue: int) -> str:
        await annotate_tool_effect(store, ctx, idempotency_key=f'issue-{issue}', effect_summary='set label')
        current = await store.get_tool_effect(run_id=await the_run(store), tool_call_id='call-1')
        assert current is not None
        assert (current.status, current.idempotency_key) == ('started', 'issue-7')
        return 'ok'

    await agent.run('go')
    [effect] = await store.list_tool_effects(run_id=await the_run(store))
    assert (effect.status, effect.idempotency_key, effect.effect_summary) == ('completed', 'issue-7', 'set label')


async def test_outside_a_watched_call_annotating_does_nothing_and_a_key_is_refused(store: InMemoryStepStore) -> None:
    agent = Agent(scripted([call('label')], 'done'))
    refused: list[ConfigurationError] = []

    @agent.tool
    async def label(ctx: RunContext[None]) -> str:
        await annotate_tool_effect(store, ctx, idempotency_key='x')
        with pytest.raises(ConfigurationError, match='add `StepPersistence`') as caught:
            tool_idempotency_key(ctx)
        refused.append(caught.value)
        return 'ok'

    await agent.run('go')
    assert len(refused) == 1
    assert await store.list_runs() == []


async def test_a_cancelled_run_ends_its_call_and_itself(store: InMemoryStepStore) -> None:
    agent = agent_with(store, [call('wait')], 'done')
    started = asyncio.Event()

    @agent.tool_plain
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return 'never'

    task = asyncio.ensure_future(agent.run('go'))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run_id = await the_run(store)
    [effect] = await store.list_tool_effects(run_id=run_id)
    assert (effect.status, effect.outcome) == ('failed', 'cancelled')
    assert {'tool_call_failed', 'run_failed'} < set(await kinds(store, run_id))


async def test_a_run_killed_in_the_middle_of_a_tool_leaves_the_call_unresolved(store: InMemoryStepStore) -> None:
    class Killed(BaseException):
        """Nothing runs after a kill, as nothing of ours runs after this."""

    agent = agent_with(store, [call('pay')], 'done')

    @agent.tool_plain
    async def pay() -> str:
        raise Killed

    with pytest.raises(Killed):
        await agent.run('go')
    run_id = await the_run(store)
    [effect] = await store.list_unresolved_tool_effects(run_id=run_id)
    assert effect.tool_name == 'pay'
    assert (await kinds(store, run_id))[-1] == 'tool_call_started'


@pytest.mark.parametrize('on_unknown', ['report', 'suspend', 'fail'])
async def test_a_call_whose_outcome_is_unknown_is_not_run_again(store: InMemoryStepStore, on_unknown: Any) -> None:
    agent = Agent(
        scripted([call('pay')], 'done'),
        capabilities=[StepPersistence(store=store, run_id='r', on_unknown=on_unknown)],
        output_type=[str, DeferredToolRequests],
    )

    @agent.tool
    async def pay(ctx: RunContext[None]) -> str:
        raise AssertionError('must not run')

    # What an attempt leaves whose process died: the entry of this very call, started by another holder.
    from harness_temporal.step_persistence.facts import RunFacts, ToolCallFacts

    run = RunFacts(run_id='r', registration_id='x')
    facts = ToolCallFacts(tool_call_id='call-1', tool_name='pay', step_index=1).keyed(run, {})
    await store.record_tool_effect(
        ToolEffectRecord(
            run_id='r', tool_call_id='call-1', tool_name='pay', status='started', call_key=facts.call_key, step_index=1
        )
    )
    if on_unknown == 'fail':
        with pytest.raises(UnknownToolOutcomeError):
            await agent.run('go')
        return
    result = await agent.run('go')
    if on_unknown == 'suspend':
        assert isinstance(result.output, DeferredToolRequests)
        assert [pending.tool_name for pending in result.output.calls] == ['pay']
        return
    request = result.all_messages()[2]
    assert isinstance(request, ModelRequest)
    [told] = request.parts
    assert isinstance(told, ToolReturnPart)
    assert (told.outcome, 'may have taken effect' in str(told.content)) == ('failed', True)


# --- identity and lineage ---


async def test_an_explicit_run_id_is_for_one_call(store: InMemoryStepStore) -> None:
    agent = agent_with(store, 'one', 'two', run_id='libr-1')
    await agent.run('go')
    with pytest.raises(DuplicateRunError, match="'libr-1' is already registered") as caught:
        await agent.run('go')
    assert isinstance(caught.value, ValueError)
    assert (await kinds(store, 'libr-1')).count('run_started') == 1


async def test_without_a_name_the_contexts_run_id_is_used(store: InMemoryStepStore) -> None:
    agent = agent_with(store, 'done')
    result = await agent.run('go')
    assert await the_run(store) == result.run_id


async def test_a_derived_id_that_is_too_long_is_refused_before_anything_is_written(store: InMemoryStepStore) -> None:
    agent = agent_with(store, 'done', agent_name='x' * 200)
    with pytest.raises(InvalidRunIdError, match='at most 200'):
        await agent.run('go')
    assert await store.list_runs() == []


async def test_a_delegate_has_the_run_of_the_tool_that_started_it_as_parent(store: InMemoryStepStore) -> None:
    orchestrator = agent_with(store, [call('ask')], 'done', agent_name='orchestrator')
    librarian = agent_with(store, 'found', agent_name='librarian')

    @orchestrator.tool_plain
    async def ask() -> str:
        return (await librarian.run('where?')).output

    await orchestrator.run('go', conversation_id='orch-conv')
    parent = (await store.list_runs(conversation_id='orch-conv'))[-1].run_id
    [delegate] = await store.list_runs(parent_run_id=parent)
    assert delegate.agent_name == 'librarian'
    assert {event.parent_run_id for event in await store.list_events(run_id=delegate.run_id)} == {parent}


async def test_turns_of_a_conversation_list_in_order_although_the_clock_goes_back(
    store: InMemoryStepStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import UTC, datetime, timedelta

    from harness_temporal import records

    hour = iter([3, 3, 3, 2])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(records, 'utc_now', lambda: now)
    original = records.RunRecord.__post_init__

    def clock_goes_back(self: records.RunRecord) -> None:
        object.__setattr__(self, 'started_at', now + timedelta(hours=next(hour)))
        original(self)

    agent = agent_with(store, 'a', 'b', 'c', 'd')
    ids = []
    for turn in 'abcd':
        with monkeypatch.context() as patched:
            patched.setattr(records.RunRecord, '__post_init__', _once(clock_goes_back, original))
            ids.append((await agent.run(turn, conversation_id='c')).run_id)
    assert [run.run_id for run in await store.list_runs(conversation_id='c')] == ids


def _once(first: Any, then: Any) -> Any:
    calls = iter([first])

    def post_init(self: Any) -> None:
        next(calls, then)(self)

    return post_init


async def test_the_transcript_handle_is_the_run_id_and_none_outside_a_run(store: InMemoryStepStore) -> None:
    capability = StepPersistence[None](store=store)
    assert capability.compaction_transcript_handle() is None
    handles: list[str | None] = []

    @dataclass
    class Asks(AbstractCapability[None]):
        async def after_run(self, ctx: RunContext[None], *, result: Any) -> Any:
            persistence = ctx.capabilities['step_persistence']
            assert isinstance(persistence, StepPersistence)
            handles.append(persistence.compaction_transcript_handle())
            return result

    await Agent(scripted('done'), capabilities=[capability, Asks()]).run('go')
    assert handles == [await the_run(store)]


# --- specs ---


def test_from_spec_builds_the_named_store(tmp_path: Any) -> None:
    assert isinstance(StepPersistence.from_spec().store, InMemoryStepStore)
    capability = StepPersistence.from_spec(
        backend='sqlite', database=str(tmp_path / 'runs.db'), max_snapshots_per_run=3, agent_name='x'
    )
    assert isinstance(capability.store, SqliteStepStore)
    assert (capability.store.max_snapshots_per_run, capability.agent_name) == (3, 'x')
    capability = StepPersistence.from_spec(backend='file', directory=str(tmp_path / 'runs'), max_snapshots_per_run=3)
    assert isinstance(capability.store, FileStepStore)
    assert capability.store.max_snapshots_per_run == 3


@pytest.mark.parametrize(
    'spec',
    [
        {'backend': 'redis'},
        {'backend': 'sqlite'},
        {'backend': 'file'},
        {'database': 'x.db'},
        {'directory': 'runs'},
        {'backend': 'sqlite', 'database': 'x.db', 'directory': 'runs'},
        {'backend': 'file', 'database': 'x.db', 'directory': 'runs'},
    ],
)
def test_from_spec_refuses_what_it_cannot_build(spec: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        StepPersistence.from_spec(**spec)
    assert isinstance(caught.value, ValueError)
