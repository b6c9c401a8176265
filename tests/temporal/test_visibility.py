"""What a person sees in the Temporal UI."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.common import SearchAttributeKey

from harness_temporal import HarnessClient
from harness_temporal.hosting.namespace import set_up
from harness_temporal.temporal.visibility import run_details
from harness_temporal.temporal.visibility.steps import call_cell
from harness_temporal.temporal.visibility.summaries import (
    LONGEST,
    call_text,
    operation_summary,
    run_summary,
    thread_summary,
    tool_summary,
)
from tests.temporal.processes import Workers, replay, wait_until_dead
from tests.temporal.runs import Run, start

pytestmark = pytest.mark.temporal


def summaries(client: Client, history: WorkflowHistory) -> list[str]:
    converter = client.data_converter.payload_converter
    return [
        converter.from_payload(event.user_metadata.summary, str)
        for event in history.events
        if event.HasField('activity_task_scheduled_event_attributes') and event.user_metadata.HasField('summary')
    ]


async def test_each_activity_says_step_and_call_and_the_details_how_it_ended(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    dying = workers.start(kill_at='after_effect')
    run = await start(client, workers, 'pay look asks')
    await wait_until_dead(dying)
    workers.start()
    await run.result()

    assert [text for text in summaries(client, await run.history()) if text.startswith('step ')] == [
        'step 1: ask the model',
        'step 1: pay()',
        'step 2: ask the model',
        'step 2: look()',
        'step 3: ask the model',
        'step 3: asks()',
    ]
    described = await run.handle.describe()
    assert await described.static_summary() is None, 'not started by our client'
    # A closed workflow answers by replay.
    metadata = await run.handle.query('__temporal_workflow_metadata', result_type=WorkflowMetadata)
    assert metadata.current_details.splitlines() == [
        f'**suspended** · it goes on with `harness-temporal resume {run.run_id} --answers FILE`',
        '',
        '- `asks()` waits for approval',
        '',
        f'run `{run.run_id}` · **1 with unknown outcome**: see `harness-temporal effects list`',
        '',
        '| step | | |',
        '| --- | --- | --- |',
        '| 3 | `asks()` | asked for approval |',
        '| 3 | ask the model | done |',
        '| 2 | `look()` | done |',
        '| 2 | ask the model | done |',
        '| 1 | `pay()` | **outcome unknown**: its worker died; look at the outside system |',
        '| 1 | ask the model | done |',
    ]
    await replay(await run.history(), workers.config)


async def test_the_details_say_how_a_run_is_and_what_to_do(client: Client, workers: Workers) -> None:
    workers.start()
    done, broken = [await start(client, workers, prompt) for prompt in ('look', 'broken')]
    await done.result()
    with pytest.raises(WorkflowFailureError):
        await broken.handle.result()

    async def heading(run: Run) -> str:
        metadata = await run.handle.query('__temporal_workflow_metadata', result_type=WorkflowMetadata)
        return metadata.current_details.splitlines()[0]

    assert await heading(done) == run_details.ended(done.run_id, 'completed', None)
    assert 'resume' in await heading(broken)
    assert await heading(broken) == run_details.failed(broken.run_id)
    for run in (done, broken):
        await replay(await run.history(), workers.config)


def test_what_a_run_waits_for_is_said_by_call() -> None:
    deferred = DeferredToolRequests(
        approvals=[ToolCallPart('pay', {'cents': 5}, 'a')], calls=[ToolCallPart('ask', '{"whom":"Ada"}', 'b')]
    )
    assert run_details.ended('run-1', 'suspended', deferred).splitlines() == [
        '**suspended** · it goes on with `harness-temporal resume run-1 --answers FILE`',
        '',
        '- `pay(cents=5)` waits for approval',
        '- `ask(whom="Ada")` waits for a result from outside',
    ]


async def test_runs_are_found_by_agent_conversation_status_and_what_they_wait_for(
    client: Client, workers: Workers
) -> None:
    await set_up(client)
    workers.start()
    harness = HarnessClient(client, agent='scripted', task_queue=workers.task_queue, search_attributes=True)
    conversation = f'talk-{uuid.uuid4().hex}'
    done = await harness.start('look', conversation_id=conversation)
    asking = await harness.start('asks', conversation_id=conversation)
    await done.result()
    await asking.result()

    query = f"HarnessAgent = 'scripted' AND HarnessConversation = '{conversation}'"

    async def found(condition: str) -> list[str]:
        return [item.id async for item in client.list_workflows(f'{query} AND {condition}')]

    described = await asking.describe()
    waiting = SearchAttributeKey.for_bool('HarnessWaitingForApproval')
    assert described.typed_search_attributes[waiting] is True
    assert await described.static_summary() == 'scripted: `asks`'
    assert await described.static_details() == f'agent `scripted` · conversation `{conversation}`\n\n`asks`'
    assert await found("HarnessStatus = 'completed'") == [done.id]
    assert await found('HarnessWaitingForApproval = true') == [asking.id]
    await replay(await asking.fetch_history(), workers.config)


def test_summaries_are_one_short_line() -> None:
    assert tool_summary(3, call_text('pay', {'cents': 500, 'to': 'Ada'})) == 'step 3: pay(cents=500, to="Ada")'
    long = tool_summary(
        12, call_text('send', {'body': 'x' * 5_000, 'lines': ['a\nb'] * 50, 'more': 'y' * 300, 'z': 'z' * 300})
    )
    assert len(long) <= LONGEST
    assert '\n' not in long
    assert tool_summary(1, call_text('odd', {'text': '\udcff'})).startswith('step 1: odd(text=')
    assert run_summary('scripted', None) == 'scripted goes on'
    assert operation_summary('agent__clerk__capability__step_persistence__end_run') == 'record how the run ended'
    assert operation_summary('agent__clerk__capability__mine__end_run') is None


@pytest.mark.parametrize('text', ['long ', '한국어 ', '"', '\\', '`', '`` ', '\x00', '\udcff', '👩\u200d🚀'])
def test_a_summary_fits_into_what_temporal_takes(text: str) -> None:
    long = text * 500
    summaries = [run_summary('clerk', long), run_summary(long, long), thread_summary(long), tool_summary(1, long)]
    for summary in summaries:
        taken = len(json.dumps(summary, ensure_ascii=False).encode(errors='surrogatepass')) - 2
        assert LONGEST - 24 < taken <= LONGEST
        assert '…' in summary


@pytest.mark.parametrize(
    ('prompt', 'shown'),
    [
        ('Read *all*\nof <b>it</b>.', '`Read *all* of <b>it</b>.`'),
        ('`ls` and `rm`', '`` `ls` and `rm` ``'),
        ('```' * 5, "`'''''''''''''''`"),
        (' ' * 1_000 + 'a `x` b', '``a `x` b``'),
        ('  ', '` `'),
    ],
    ids=['markup', 'code', 'too much of a fence', 'code after many blanks', 'blank'],
)
def test_a_prompt_is_code_in_what_is_said_of_the_start(prompt: str, shown: str) -> None:
    assert run_summary('clerk', prompt) == f'clerk: {shown}'
    begun = run_details.begun('clerk', prompt, conversation_id=None, continued='run-1', forked=None)
    assert begun == f'agent `clerk` · goes on from run `run-1`\n\n{shown}'


def test_what_a_run_branches_off_is_said() -> None:
    begun = run_details.begun('clerk', None, conversation_id='c', continued=None, forked='run-1')
    assert begun == 'agent `clerk` · conversation `c` · branches off run `run-1`'


@pytest.mark.parametrize(
    ('call', 'shown'),
    [
        ('pay(cents=500)', '`pay(cents=500)`'),
        ('find(query="a|b")', r'`find(query="a\|b")`'),
        ('run(code="`x` ``y``")', '```run(code="`x` ``y``")```'),
        ('run(code="' + 'x' * 288 + '``y")', '```run(code="' + 'x' * 278 + '…```'),
    ],
    ids=['plain', 'pipe', 'backticks', 'cut'],
)
def test_a_call_is_code_in_its_cell(call: str, shown: str) -> None:
    assert call_cell(call) == shown
