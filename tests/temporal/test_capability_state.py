"""Capability state crosses into the activities that tools run in, and what they write comes back in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from harness_temporal import AgentExecutable, HarnessState
from harness_temporal.errors import StateError
from harness_temporal.records import ToolEffectRecord
from harness_temporal.state.recovery import read_recorded
from harness_temporal.step_persistence import InMemoryStepStore
from tests.temporal import scenarios
from tests.temporal.effects import noted
from tests.temporal.processes import Workers, replay, wait_until_dead
from tests.temporal.stateful import COUNTER, StatefulOutput, StatefulRun, execute

pytestmark = pytest.mark.temporal


@dataclass
class Ended:
    handle: WorkflowHandle[Any, StatefulOutput]
    output: StatefulOutput

    @property
    def state(self) -> HarnessState:
        return HarnessState.model_validate_json(self.output.state)

    def data(self, namespace: str) -> Any:
        return self.state.agent_context_state.entries[namespace].data


async def start(client: Client, workers: Workers, prompt: str) -> WorkflowHandle[Any, StatefulOutput]:
    return await client.start_workflow(
        StatefulRun.run, prompt, id=f'stateful-{workers.task_queue}', task_queue=workers.task_queue
    )


async def run(client: Client, workers: Workers, prompt: str) -> Ended:
    workers.start()
    handle = await start(client, workers, prompt)
    return Ended(handle, await handle.result())


def plain(folder: Path) -> AgentExecutable[None, Any]:
    [agent] = [agent for agent in scenarios.agents(InMemoryStepStore(), folder) if agent.name == 'stateful']
    return AgentExecutable(agent)


async def effects_of(workers: Workers) -> list[ToolEffectRecord]:
    store = workers.config.open_store()
    [recorded] = await store.list_runs()
    return await store.list_tool_effects(run_id=recorded.run_id)


def assert_same(given: StatefulOutput, expected: StatefulOutput) -> None:
    states = [HarnessState.model_validate_json(output.state) for output in (given, expected)]
    assert (given.status, given.output) == (expected.status, expected.output)
    assert said(states[0]) == said(states[1])
    assert states[0].agent_context_state == states[1].agent_context_state


def said(state: HarnessState) -> list[Any]:
    """What a history says, without what differs from run to run."""
    parts = [part for message in state.message_history for part in message.parts]
    return [{key: value for key, value in vars(part).items() if key not in ('timestamp', 'id')} for part in parts]


async def test_a_tool_reads_what_was_written_before_it_wherever_it_runs(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    prompt = 'counted counted_in_workflow counted_in_child found quiet delegates unwritable counted'
    ended = await run(client, workers, prompt)
    *given, unwritable, last = ended.output.output.split(' | ')
    assert given == ['counted 2', 'counted 3', 'counted 4', 'found 5', 'quiet', 'run_not_active 6']
    assert 'no JSON form' in unwritable
    assert last == 'counted 8'
    assert ended.data(COUNTER) == {'value': 8}
    history = await ended.handle.fetch_history()
    await replay(history, workers.config)

    sent = {
        event.event_id: event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField('activity_task_scheduled_event_attributes')
    }
    with_state = {task.activity_type.name for task in sent.values() if b'harness_state' in task.input.payloads[0].data}
    assert with_state == {
        'agent__stateful__toolset__<agent>__call_tool',
        'agent__stateful__dynamic_toolset__found__call_tool',
    }
    results = [
        event.activity_task_completed_event_attributes.result.payloads[0].data
        for event in history.events
        if event.HasField('activity_task_completed_event_attributes')
    ]
    assert b'{"result":"quiet","kind":"tool_return"}' in results


async def test_signals_keep_what_was_written_before_them(client: Client, workers: Workers, tmp_path: Path) -> None:
    prompt = 'retries fails invalid asks'
    ended = await run(client, workers, prompt)
    expected = await execute(plain(tmp_path), prompt)
    assert ended.output.status == 'suspended'
    assert ended.data(COUNTER) == {'value': 5}
    assert_same(ended.output, expected)

    effects = await effects_of(workers)
    assert [effect.outcome for effect in effects] == ['retry', 'failed', 'retry', 'approval_required']
    assert effects[0].error == 'counted 2'
    recorded = read_recorded({effect.tool_call_id: effect.value for effect in effects if effect.value is not None})
    assert [write.data for writes in recorded.writes.values() for write in writes] == [
        f'{{"value":{value}}}' for value in (2, 3, 4, 5)
    ]
    assert len(recorded.answers) == 3
    assert recorded.requests['call-3-0'].metadata == {'why': 'counted 5'}


async def test_nobody_sees_that_a_value_carried_something(client: Client, workers: Workers, tmp_path: Path) -> None:
    prompt = 'files mapping looks_alike looks_alike_and_counts looks_alike_in_workflow structured'
    ended = await run(client, workers, prompt)
    expected = await execute(plain(tmp_path), prompt)
    assert ended.output.status == 'completed'
    assert ended.data(COUNTER) == {'value': 5}
    assert_same(ended.output, expected)
    await replay(await ended.handle.fetch_history(), workers.config)


async def test_of_parallel_tools_the_last_result_wins(client: Client, workers: Workers) -> None:
    ended = await run(client, workers, 'counted early+late counted')
    # Each has read what was there when both were called.
    assert ended.output.output == 'counted 2 | counted 3 | counted 3 | counted 4'
    assert ended.data('acme.late') == {'value': 1}
    await replay(await ended.handle.fetch_history(), workers.config)


async def test_writes_are_there_once_when_the_worker_dies_before_it_reports_them(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    doomed = workers.start(kill_at='after_finish')
    handle = await start(client, workers, 'pays counted')
    await wait_until_dead(doomed)
    workers.start(kill_at='after_finish')
    ended = Ended(handle, await handle.result())
    assert noted(tmp_path, 'paid') == ['']
    assert ended.output.output == 'counted 2 | counted 3'
    assert ended.data(COUNTER) == {'value': 3}
    await replay(await handle.fetch_history(), workers.config)


@pytest.mark.parametrize(
    ('tool', 'code'),
    [
        pytest.param('wrong_version', 'capability_state_version_unsupported', id='version'),
        pytest.param('too_large', 'capability_state_invalid', id='size'),
    ],
)
async def test_a_mistake_ends_the_run_as_in_a_plain_one(
    client: Client, workers: Workers, tmp_path: Path, tool: str, code: str
) -> None:
    with pytest.raises(StateError) as plainly:
        await execute(plain(tmp_path), tool)
    with pytest.raises(WorkflowFailureError) as caught:
        await run(client, workers, tool)
    told = caught.value.cause
    assert isinstance(told, ApplicationError)
    assert (told.type, told.message) == ('StateError', str(plainly.value))
    assert plainly.value.code == code
    [effect] = await effects_of(workers)
    assert (effect.outcome, effect.attempts) == ('error', 1)
    assert effect.error == f'StateError: {told.message}'
