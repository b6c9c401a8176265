"""Names and formats that are in stores and Temporal histories for ever.

A change here is a change of what is stored: keep reading the old form, add a migration, and say so in the changelog.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from harness_temporal import records
from harness_temporal.history import decode_message, encode_message, link, stored_message
from harness_temporal.identity import decode_run_id, event_key, resolve_run_id, snapshot_key, tool_call_key
from harness_temporal.records import EventKind, SnapshotState, ToolEffectStatus, ToolOutcome
from harness_temporal.stores.sqlite import SqliteStepStore
from harness_temporal.testing.samples import a_run, a_start, asks, returns
from harness_temporal.text import escape, escape_key

# --- values ---


def test_event_kinds() -> None:
    assert get_args(EventKind) == (
        'run_started',
        'run_completed',
        'run_failed',
        'model_request_started',
        'model_request_completed',
        'model_request_failed',
        'tool_call_started',
        'tool_call_completed',
        'tool_call_failed',
    )


def test_snapshot_states() -> None:
    assert get_args(SnapshotState) == ('complete', 'interrupted')


def test_tool_effect_statuses() -> None:
    assert get_args(ToolEffectStatus) == ('started', 'completed', 'failed')


def test_tool_outcomes() -> None:
    assert get_args(ToolOutcome) == (
        'returned',
        'retry',
        'failed',
        'approval_required',
        'deferred',
        'cancelled',
        'error',
    )


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('RunRecord', 'run_id conversation_id parent_run_id agent_name metadata started_at registration_id'),
        (
            'StepEvent',
            'run_id kind step_index timestamp conversation_id parent_run_id agent_name tool_call_id tool_name error '
            'metadata idempotency_key seq',
        ),
        (
            'ContinuableSnapshot',
            'run_id step_index messages conversation_id parent_run_id agent_name timestamp state idempotency_key seq',
        ),
        (
            'ToolEffectRecord',
            'tool_call_id tool_name run_id status started_at ended_at idempotency_key effect_summary call_key '
            'step_index attempts holder outcome value error seq',
        ),
        ('ModelResponseRecord', 'run_id key body'),
    ],
)
def test_fields_of_records(name: str, expected: str) -> None:
    assert [field.name for field in fields(getattr(records, name))] == expected.split()


# --- ids and keys ---


@pytest.mark.parametrize(
    ('agent_name', 'context_run_id', 'run_id'),
    [
        ('code_librarian', '0190-abc', 'Y29kZV9saWJyYXJpYW4.MDE5MC1hYmM'),
        ('é', 'a/b', 'w6k.YS9i'),
        ('', 'x', '.eA'),
        ('\udce9', '\x00', '7bOp.AA'),
    ],
)
def test_run_id_derived_from_an_agent_name(agent_name: str, context_run_id: str, run_id: str) -> None:
    assert resolve_run_id(explicit=None, agent_name=agent_name, context_run_id=context_run_id) == run_id
    assert decode_run_id(run_id) == (agent_name, context_run_id)


@pytest.mark.parametrize(
    ('call', 'key'),
    [
        (
            {'run_id': 'run-1', 'step_index': 1, 'tool_call_id': 'call-1', 'tool_name': 'tool', 'arguments': {}},
            'call-6ada2aa0f9a65e2ee12467a5a4feb384338e37f3',
        ),
        (
            {
                'run_id': 'run-1',
                'step_index': 3,
                'tool_call_id': '',
                'tool_name': 'charge_card',
                'arguments': {'to': 'é😀', 'amount': 2**70, 'lines': [{'b': None, 'a': 1.5}], 'ok': True},
                'occurrence': 2,
            },
            'call-af0366a2a3bef6af07801cda188d90046a51be63',
        ),
    ],
)
def test_key_of_a_tool_call(call: dict[str, Any], key: str) -> None:
    assert tool_call_key(**call) == key


def test_keys_of_events_and_snapshots() -> None:
    assert event_key('run_started', step_index=0) == 'run_started:0::1.1'
    assert (
        event_key('tool_call_started', step_index=3, subject='call-1', attempt=2, run_attempt=4)
        == 'tool_call_started:3:call-1:4.2'
    )
    assert snapshot_key(save=4, step_index=2, state='complete') == 'snapshot:4:2:complete:1'
    assert snapshot_key(save=4, step_index=2, state='interrupted', attempt=3) == 'snapshot:4:2:interrupted:3'
    assert snapshot_key(save=4, step_index=2, state='interrupted', request_attempt=2) == 'snapshot:4:2:interrupted:1.2'


def test_key_of_a_ledger_entry_without_a_call_key() -> None:
    assert a_start(call_key=None, tool_call_id='call-1').ledger_key == 'id-call-1'


# --- text and messages ---


def test_escapes() -> None:
    assert escape('a\x00\udce9\uf8ff') == 'a\uf8ff0000\uf8ffdce9\uf8fff8ff'
    assert escape_key('kind') == '\uf8ff006bind'


def test_digests_of_messages_and_histories() -> None:
    request = stored_message(b'{"parts":[],"kind":"request"}')
    response = stored_message(b'{"parts":[],"kind":"response"}')
    assert request.digest.hex() == '7809eddfc4f49fb14e6ad51978654084937bea107e699183334504ed503b4ee8'
    assert [item.digest.hex() for item in link(None, 0, [request, response]).links] == [
        '40e2f52a6ffa054840469cfefa77a39776736bead1f630c3dc9b98f15aa67c8b',
        'eff8608d2f57b561e55653ea7550cbd81524037036139c8dcf3e10aff2385bb1',
    ]


def test_plain_body_is_json_and_an_escaped_one_is_marked() -> None:
    assert encode_message(asks('x')).body.startswith(
        b'{"parts":[{"content":"x","timestamp":"2026-03-01T12:00:00.123457Z"'
    )
    escaped = encode_message(returns({'kind': '\ud800'})).body
    assert escaped.startswith(b'\x01{"parts":[{"tool_name":"tool","content":{"\xef\xa3\xbf006bind":"\xef\xa3\xbfd800"}')


def test_stored_bodies_are_read_as_ever() -> None:
    plain = (
        b'{"parts":[{"content":"x","timestamp":"2026-03-01T12:00:00.123457Z","part_kind":"user-prompt"}],'
        b'"timestamp":null,"instructions":null,"kind":"request","run_id":null,"conversation_id":null,"metadata":null,'
        b'"state":"complete"}'
    )
    escaped = (
        b'\x01{"parts":[{"tool_name":"tool","content":{"\xef\xa3\xbf006bind":"binary","t":"\xef\xa3\xbf0000\xef\xa3\xbf'
        b'd800\xef\xa3\xbff8ff","n":NaN},"tool_call_id":"call-1","tool_kind":null,"metadata":null,'
        b'"timestamp":"2026-03-01T12:00:00.123457Z","outcome":"success","retry":null,"part_kind":"tool-return"}],'
        b'"timestamp":null,"instructions":null,"kind":"request","run_id":null,"conversation_id":null,"metadata":null,'
        b'"state":"complete"}'
    )
    assert decode_message(plain) == asks('x')
    (part,) = decode_message(escaped).parts
    assert repr(part.content) == repr({'kind': 'binary', 't': '\x00\ud800\uf8ff', 'n': float('nan')})


# --- tables ---

RUNS = 'run_id conversation_id parent_run_id agent_name metadata started_at registration_id'
EVENTS = (
    'run_id seq kind step_index timestamp conversation_id parent_run_id agent_name tool_call_id tool_name error '
    'metadata idempotency_key'
)
SNAPSHOTS = 'run_id seq step_index state timestamp conversation_id parent_run_id agent_name idempotency_key head length'
EFFECTS = (
    'run_id ledger_key seq tool_call_id tool_name call_key status step_index attempts holder started_at ended_at '
    'idempotency_key effect_summary outcome value error'
)
HEADS = 'key updated_at head length metadata metadata_text message_text'
TABLES = {
    'runs': f'{RUNS} registration_number',
    'run_sequences': 'run_id next_seq',
    'events': EVENTS,
    'messages': 'digest body',
    'history_links': 'digest parent message length',
    'snapshots': SNAPSHOTS,
    'snapshot_idempotency_keys': 'run_id idempotency_key',
    'tool_effects': EFFECTS,
    'model_responses': 'run_id key body',
}


def as_sets(tables: dict[str, str]) -> dict[str, set[str]]:
    return {name: set(columns.split()) for name, columns in tables.items()}


async def test_tables_of_sqlite(tmp_path: Path) -> None:
    store = SqliteStepStore(tmp_path / 'runs.db')
    await store.register_run(a_run())
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / 'runs.db')) as connection:
        rows = connection.execute(
            'SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns '
            "WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'"
        )
        found: dict[str, set[str]] = {}
        for table, column in rows:
            found.setdefault(table, set()).add(column)
    media = {'media': 'digest data media_type metadata touched_at', 'conversation_heads': HEADS}
    assert found == as_sets({**TABLES, **media, 'harness_temporal_schema': 'part version checksum applied_at'})


@pytest.mark.postgres
async def test_tables_of_postgres(postgres: str, schema: str) -> None:
    import asyncpg

    from harness_temporal.stores import PostgresStepStore

    store = PostgresStepStore(postgres, schema=schema)
    await store.register_run(a_run())
    await store.aclose()
    connection = await asyncpg.connect(postgres)
    try:
        rows = await connection.fetch(
            'SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1', schema
        )
    finally:
        await connection.close()
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    own = {
        'tool_effects': f'{EFFECTS} revision',
        'conversation_heads': f'{HEADS} version',
        'schema_versions': 'version name checksum applied_at',
        'media': 'digest size media_type metadata touched_at',
        'media_chunks': 'digest index data',
        'memory_notebooks': 'id agent namespace operations',
        'memory_notes': 'notebook_id name text',
        'memory_operations': 'notebook_id key number revision',
    }
    assert found == as_sets({**TABLES, **own})
