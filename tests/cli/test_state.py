from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness_temporal import HarnessState
from tests.cli.conftest import cli, given
from tests.cli.seeding import a_run, committed, cut_off, said

STORE = 'sqlite:runs.db'


@pytest.fixture(autouse=True)
def _runs(_in_an_empty_folder: None) -> None:
    committed(STORE, [a_run('run-1'), said('run-1', 'Hello', 'Hi')], cut_off('run-2'), [a_run('bare')])


def test_a_thread_goes_out_of_one_store_and_into_another(tmp_path: Path) -> None:
    exported = given('state', 'export', 'run-1', '--store', STORE, '-o', 'state.json', '--thread-id', 'thread_a')
    assert exported == {'file': 'state.json', 'thread_id': 'thread_a', 'messages': 2}
    state = HarnessState.model_validate_json(Path('state.json').read_text())
    assert cli('store', 'migrate', '--store', 'file:other').status == 0
    kept = given('state', 'import', 'state.json', '--store', 'file:other', '--agent', 'clerk')
    assert kept['thread_id'] == 'thread_a'
    printed = cli('state', 'export', kept['run_id'], '--store', 'file:other', '--thread-id', 'thread_a').stdout
    assert HarnessState.model_validate_json(printed) == state
    run = given('runs', 'show', kept['run_id'], '--store', 'file:other')['run']
    assert (run['agent_name'], run['metadata']) == ('clerk', {'harness.thread_id': 'thread_a'})
    assert run['settled_snapshot']['messages'] == 2


def test_a_thread_with_an_open_call_stays_open() -> None:
    document = given('state', 'export', 'run-2', '--store', STORE)['state']
    Path('state.json').write_text(json.dumps(document))
    kept = given('state', 'import', 'state.json', '--store', STORE, '--run', 'again')
    assert kept['run_id'] == 'again'
    assert given('runs', 'show', 'again', '--store', STORE)['run']['latest_snapshot']['state'] == 'interrupted'


def test_what_capabilities_keep_is_said_to_stay_behind() -> None:
    state = HarnessState.model_validate(
        {
            **given('state', 'export', 'run-1', '--store', STORE)['state'],
            'agent_context_state': {'entries': {'acme': {'version': '1', 'data': {}}}},
        }
    )
    Path('state.json').write_text(state.model_dump_json())
    done = cli('state', 'import', 'state.json', '--store', STORE)
    assert 'What acme keep is in the file only' in done.stdout


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('{', 'This is not a state'),
        ('{"schema_version": "9", "thread_id": "thread_a"}', 'not of version'),
        ('{"schema_version": "1", "thread_id": "thread_a", "message_history": []}', 'has no messages to keep'),
        (None, 'The state cannot be read from state.json'),
    ],
)
def test_what_is_no_state_is_told(text: str | None, message: str) -> None:
    if text is not None:
        Path('state.json').write_text(text)
    done = cli('state', 'import', 'state.json', '--store', STORE)
    assert done.status == 1
    assert message in done.stderr


def test_a_run_is_not_imported_over_another() -> None:
    given('state', 'export', 'run-1', '--store', STORE, '-o', 'state.json')
    done = cli('state', 'import', 'state.json', '--store', STORE, '--run', 'run-1')
    assert "Run id 'run-1' is already registered" in done.stderr


def test_a_run_without_a_snapshot_has_no_state() -> None:
    done = cli('state', 'export', 'bare', '--store', STORE)
    assert (done.status, done.stdout) == (1, '')
    assert "Run 'bare' has no snapshot" in done.stderr
