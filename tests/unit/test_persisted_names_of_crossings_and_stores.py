"""More names that are for ever: what crosses into activities, and what the file and MongoDB stores call things."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolReturn
from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage]

from harness_temporal.history import encode_history
from harness_temporal.media import MediaContext
from harness_temporal.records import EncodedSnapshot
from harness_temporal.state import StateWrite, progress
from harness_temporal.step_persistence import FileStepStore, facts, operations, outcomes, resolving
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal import (
    agent_run,
    carried_state,
    client,
    continuation,
    durability,
    headers,
    run_context,
    sent_requests,
    snapshots,
    state_crossing,
)
from harness_temporal.temporal.threads import resting, values
from harness_temporal.temporal.threads.client import thread_workflow_id
from harness_temporal.temporal.visibility import attributes
from harness_temporal.testing.samples import a_run, a_snapshot, a_start, an_end, an_event, asks
from harness_temporal.tools import RECOVERY_RETRY_SAFE_METADATA_KEY
from workflows.thread import ThreadWorkflow


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('RunFacts', 'run_id registration_id conversation_id parent_run_id agent_name metadata attempt'),
        ('EventFacts', 'kind step_index subject attempt tool_call_id tool_name error outcome response'),
        ('SnapshotFacts', 'save step_index state base base_length bodies'),
        ('ToolCallFacts', 'tool_call_id tool_name step_index occurrence call_key retryable announced'),
        ('EndedToolCall', 'call outcome value error idempotency_key effect_summary'),
        ('ContinuedRun', 'run last_step requests saves saved_length ended'),
        ('ModelRequestFacts', 'step_index subject save snapshot frontier_save pending'),
    ],
)
def test_fields_of_what_crosses_into_activities(name: str, expected: str) -> None:
    assert [field.name for field in fields(getattr(facts, name))] == expected.split()


@pytest.mark.parametrize(
    ('crossing', 'expected'),
    [
        (
            agent_run.AgentRunInput,
            'agent prompt deps conversation_id parent_run_id continue_from fork_from state answers tool_recovery '
            'usage_limits history_budget going_on search_attributes',
        ),
        (agent_run.AgentRunOutput, 'status output run_id conversation_id snapshot state usage'),
        (carried_state.SnapshotReference, 'run_id include_interrupted'),
        (carried_state.CarriedState, 'document history'),
        (continuation.HistoryBudget, 'events bytes walked_messages'),
        (continuation.ContinuedAgentRun, 'progress behind conversation_id run_id'),
        (progress.RunProgress, 'run_id steps output_retries renews_system_prompts usage'),
        (snapshots.LoadSnapshot, 'agent run_id include_interrupted'),
        (snapshots.LoadedSnapshot, 'bodies conversation_id outcomes'),
        (snapshots.SaveSnapshot, 'agent capability_id run snapshot'),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else '',
)
def test_fields_of_what_crosses_into_workflows(crossing: type, expected: str) -> None:
    assert [field.name for field in fields(crossing)] == expected.split()


@pytest.mark.parametrize(
    ('crossing', 'expected'),
    [
        ('ApprovalPolicy', 'timeout remind_every reminder_activity'),
        ('ThreadOptions', 'approvals usage_limits history_budget max_prompt_bytes max_queued'),
        ('Turn', 'number key digest prompt status run_id output error_type error usage cancelled'),
        ('StepSummary', 'number text tools'),
        ('Asked', 'answers since reminded'),
        ('Recovery', 'snapshot tool_recovery capabilities'),
        (
            'CarriedThread',
            'turns last_number state recoveries usage name asked answers answered_calls going_on steps update_ids '
            'closing stream stream_offset',
        ),
        ('ThreadInput', 'thread_id agent deps name options state going_on search_attributes'),
        ('ThreadOutput', 'thread_id name state usage turns'),
        ('SendInput', 'prompt key wait'),
        ('ResolveInput', 'answers run_id wait'),
        ('CancelInput', 'turn'),
        ('RenameInput', 'name'),
        ('PendingCall', 'tool_call_id tool kind arguments metadata since deadline answered'),
        ('ApprovalReminder', 'thread_id name number pending'),
        ('Reply', 'turn key status output error_type error run_id usage pending handed_over'),
        ('ThreadStatus', 'state name turn queued usage'),
    ],
)
def test_fields_of_what_crosses_into_threads(crossing: str, expected: str) -> None:
    assert [field.name for field in fields(getattr(values, crossing))] == expected.split()


def test_names_of_a_threads_workflow_and_of_how_others_get_at_it() -> None:
    definition = _Definition.must_from_class(ThreadWorkflow)
    assert definition.name == values.THREAD_WORKFLOW == 'Thread'
    assert {*definition.updates} == {'send', 'resolve', 'cancel', 'rename', 'close'}
    assert {*definition.queries} >= {'status', 'approvals', 'steps', 'state'}
    assert thread_workflow_id('thread_1') == 'thread-thread_1'
    assert resting.RESTING_PATCH == 'harness_temporal.threads.resting'


def test_how_model_requests_cross() -> None:
    assert sent_requests.REQUEST_KEY == 'harness_request'
    assert [field.name for field in fields(sent_requests.Crossing)] == ['number', 'base', 'kept']


def test_names_in_histories() -> None:
    assert run_context.FRAMES_KEY == 'harness_frames'
    assert state_crossing.STATE_KEY == 'harness_state'
    assert headers.PARENT_RUN_HEADER == 'harness-parent-run-id'
    assert headers.EXPIRY_HEADER == 'harness-execution-expires-at'
    assert snapshots.LOAD_SNAPSHOT_ACTIVITY == 'harness_temporal__load_snapshot'
    assert snapshots.SAVE_SNAPSHOT_ACTIVITY == 'harness_temporal__save_snapshot'
    assert client.AGENT_RUN_WORKFLOW == 'AgentRun'
    assert durability.WORKFLOW_ID_METADATA_KEY == 'temporal.workflow_id'
    assert operations.RESPONSE_METADATA_KEY == 'harness.response'
    assert (resolving.PERSON_HOLDER_PREFIX, resolving.RESOLVED_BY_METADATA_KEY) == ('person:', 'harness.resolved_by')
    assert RECOVERY_RETRY_SAFE_METADATA_KEY == 'harness_temporal.recovery_retry_safe'


def test_search_attributes() -> None:
    keys = (
        attributes.AGENT,
        attributes.CONVERSATION,
        attributes.PARENT_RUN,
        attributes.STATUS,
        attributes.WAITING_FOR_APPROVAL,
    )
    assert [(key.name, key.origin_value_type) for key in keys] == [
        ('HarnessAgent', str),
        ('HarnessConversation', str),
        ('HarnessParentRun', str),
        ('HarnessStatus', str),
        ('HarnessWaitingForApproval', bool),
    ]


def test_what_a_tool_result_carries() -> None:
    write = StateWrite('acme', '1', '{"value":1}').dump()
    assert write == {'namespace': 'acme', 'version': '1', 'data': '{"value":1}'}
    retried = outcomes.with_state_writes(outcomes.result('model_retry', message='again'), [write])
    returned = outcomes.with_state_writes(outcomes.result('tool_return', result=ToolReturn(1, metadata=2)), [write])
    carried = [json.loads(outcomes.ended_with_result(given).value or b'') for given in (retried, returned)]
    assert [item['kind'] for item in carried] == ['tool_return', 'tool_return']
    assert [item['result']['metadata'] for item in carried] == [
        {
            'harness_temporal.carried': {
                'version': 1,
                'signal': {'message': 'again', 'kind': 'model_retry'},
                'state_writes': [write],
            }
        },
        {'harness_temporal.carried': {'version': 1, 'state_writes': [write], 'metadata': 2}},
    ]


async def write_one_of_each(store: StepStore) -> None:
    await store.commit([a_run(), a_start(), an_event(), a_snapshot([asks('x')])])
    await store.aclose()


def test_files_of_the_file_store(tmp_path: Path) -> None:
    asyncio.run(write_one_of_each(FileStepStore(tmp_path)))
    run = tmp_path / 'run-1'
    named = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob('*') if path.is_file()}
    messages = {name for name in named if name.startswith('messages/')} - {'messages/.lock'}
    assert len(messages) == 1
    assert named - messages == {
        '.journal',
        '.registered',
        'messages/.lock',
        'run-1/.journal',
        'run-1/run.json',
        'run-1/events.jsonl',
        'run-1/tool_effects.jsonl',
        'run-1/snapshot-keys.jsonl',
        'run-1/snapshots/3.json',
    }
    assert set(json.loads((run / 'run.json').read_text())) >= {'run_id', 'metadata', 'started_at'}
    assert 'head' in json.loads((run / 'snapshots' / '3.json').read_text())


@pytest.mark.mongo
async def test_collections_of_mongodb(mongo: str, database: str) -> None:
    from pymongo import AsyncMongoClient

    from harness_temporal.stores import MongoStepStore

    await write_one_of_each(MongoStepStore(db_url=mongo, database=database))
    async with AsyncMongoClient[dict[str, object]](mongo) as client:
        found = set(await client[database].list_collection_names())
    assert found >= {
        'runs',
        'events',
        'snapshots',
        'snapshot_idempotency_keys',
        'tool_effects',
        'counters',
        'messages',
        'message_chunks',
        'history_links',
        'model_responses',
    }


@pytest.mark.mongo
async def test_documents_of_content_in_mongodb(mongo: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pymongo import AsyncMongoClient

    from harness_temporal.stores import MongoStepStore

    store = MongoStepStore(db_url=mongo, database=database)
    # A short message, one in two chunks, and an effect with a large text, which is in the media store.
    history = encode_history([asks('x'), asks('y' * 150)])
    size = len(history.links[0].message.body)
    monkeypatch.setattr('harness_temporal.stores.mongo.messages._CHUNK', size)
    await store.commit(
        [EncodedSnapshot(snapshot=a_snapshot(), history=history), an_end(value=b'"%b"' % (b'z' * 70_000))]
    )
    await store.aclose()
    async with AsyncMongoClient[dict[str, object]](mongo) as client:
        opened = client[database]
        messages = {item.pop('_id'): item for item in await opened['messages'].find().to_list()}
        chunks = await opened['message_chunks'].find(sort={'_id': 1}).to_list()
        links = {item.pop('_id'): item for item in await opened['history_links'].find().to_list()}
        [effect] = await opened['tool_effects'].find().to_list()
        [counter] = await opened['counters'].find().to_list()
    touched = [item.pop('touched_at') for item in (*messages.values(), *links.values())]
    for stored in (*touched, *(chunk['written_at'] for chunk in chunks)):
        # Microseconds since 1970.
        assert isinstance(stored, int)
        assert len(str(stored)) == 16
    first, second = history.links
    assert links == {
        first.digest: {'up': b'', 'message': first.message.digest, 'length': 1},
        second.digest: {
            'up': first.digest,
            'parent': first.digest,
            'message': second.message.digest,
            'length': 2,
        },
    }
    upload = messages[second.message.digest].pop('upload')
    assert messages == {
        first.message.digest: {'body': first.message.body},
        second.message.digest: {'chunks': 2},
    }
    assert isinstance(upload, bytes)
    assert upload[:32] == second.message.digest
    assert len(upload) == 48
    body = second.message.body
    assert [(chunk['_id'], chunk['body']) for chunk in chunks] == [
        (upload + b'\x00\x00\x00\x00', body[:size]),
        (upload + b'\x00\x00\x00\x01', body[size:]),
    ]
    assert all(chunk.keys() == {'_id', 'body', 'written_at'} for chunk in chunks)
    assert effect['external'] is True
    assert counter.keys() == {'_id', 'version', 'next_seq'}


@pytest.mark.mongo
async def test_documents_of_blobs_in_mongodb(mongo: str, database: str) -> None:
    from pymongo import AsyncMongoClient

    from harness_temporal.media import MongoMediaStore

    media = MongoMediaStore(db_url=mongo, database=database, chunk_size_bytes=1024)
    await media.put(b'x' * 1025, context=MediaContext(media_type='text/plain', metadata={'a': 'é'}))
    await media.aclose()
    async with AsyncMongoClient[dict[str, object]](mongo) as client:
        (manifest,) = await client[database]['media'].find().to_list()
        chunks = await client[database]['media_chunks'].find(sort={'_id': 1}).to_list()
    upload, touched_at = manifest.pop('upload'), manifest.pop('touched_at')
    digest = hashlib.sha256(b'x' * 1025).digest()
    assert manifest == {
        '_id': digest,
        'size': 1025,
        'chunk_size': 1024,
        'media_type': 'text/plain',
        'metadata': '{"a": "é"}',
    }
    assert isinstance(upload, bytes)
    assert upload[:32] == digest
    assert len(upload) == 48
    assert [(chunk['_id'], chunk['data']) for chunk in chunks] == [
        (upload + b'\x00\x00\x00\x00', b'x' * 1024),
        (upload + b'\x00\x00\x00\x01', b'x'),
    ]
    for stored in (touched_at, *(chunk['written_at'] for chunk in chunks)):
        # Microseconds since 1970.
        assert isinstance(stored, int)
        assert len(str(stored)) == 16
    assert all(chunk.keys() == {'_id', 'data', 'written_at'} for chunk in chunks)
