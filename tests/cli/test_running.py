"""Commands that need a worker, with one that the command line started."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import Office, cli, given
from tests.cli.seeding import committed, cut_off

pytestmark = pytest.mark.temporal


def test_worker_says_what_it_runs(office: Office) -> None:
    assert office.started == {'ok': True, 'agents': ['clerk'], 'task_queue': office.task_queue}


def test_run_prints_the_answer_alone(at_work: Office) -> None:
    done = cli('run', 'clerk', 'Hello [you]')
    assert (done.status, done.stdout) == (0, 'You said Hello [you].\n')


def test_run_takes_dependencies_a_conversation_and_an_id(at_work: Office) -> None:
    workflow_id = f'run-{uuid.uuid4()}'
    arguments = ('--deps', '{"floor": 3}', '--conversation', 'c', '--workflow-id', workflow_id)
    run = given('run', 'clerk', 'floor', *arguments)
    assert (run['output'], run['status']) == ('It gave floor 3.', 'completed')
    assert (run['conversation_id'], run['workflow_id']) == ('c', workflow_id)
    assert run['usage']['requests'] == 2
    record = given('runs', 'show', run['run_id'])['run']
    assert record['metadata']['temporal.workflow_id'] == workflow_id
    done = cli('run', 'clerk', 'again', '--workflow-id', workflow_id)
    assert f"The workflow '{workflow_id}' is running, or has completed" in done.stderr


def test_a_run_that_is_not_waited_for_is_found_by_its_workflow(at_work: Office) -> None:
    begun = given('run', 'clerk', 'later', '--no-wait')
    assert begun['workflow_id'].startswith('clerk-')
    assert 'output' not in begun


def test_a_persons_decision_is_what_the_resumed_run_gets(at_work: Office) -> None:
    run_id = f'cut-{uuid.uuid4()}'
    committed(at_work.store, cut_off(run_id))
    assert run_id in cli('effects', 'list').stdout
    given('effects', 'resolve', run_id, 'call-1', '--completed', '"3 cents paid"')
    resumed = given('resume', run_id)
    assert resumed['output'] == 'It gave 3 cents paid.'
    assert resumed['workflow_id'] == f'resume-{run_id}'


def test_fork_goes_on_beside_the_run_and_its_result_can_be_carried_away(at_work: Office) -> None:
    first = given('run', 'clerk', 'one', '--conversation', 'c-1')
    fork = given('fork', first['run_id'], '--prompt', 'two', '--conversation', 'c-2')
    assert (fork['output'], fork['conversation_id']) == ('You said two.', 'c-2')
    assert given('runs', 'diff', first['run_id'], fork['run_id'])['shared_messages'] == 2
    state = given('state', 'export', fork['run_id'], '--from-workflow')['state']
    Path('state.json').write_text(json.dumps(state))
    assert given('run', 'clerk', 'three', '--state', 'state.json')['output'] == 'You said three.'
    assert len(state['message_history']) == 4


def test_doctor_finds_everything_well(at_work: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HARNESS_AGENTS', 'tests.cli.agents:clerk')
    Path('kept.py').write_text(
        'from harness_temporal.conversations import SqliteConversationStore\n'
        'from harness_temporal.media import DiskMediaStore\n'
        'from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage\n'
        "payloads = PayloadStorage(DiskMediaStore('pieces'), keys=KeyRing.of(Key.generate('k1')))\n"
        "conversations = SqliteConversationStore('conversations.db')\n"
    )
    monkeypatch.setenv('HARNESS_PAYLOADS', 'kept:payloads')
    monkeypatch.setenv('HARNESS_CONVERSATIONS', 'kept:conversations')
    done = cli('doctor', '--json')
    found = {name: check['status'] for name, check in done.json['checks'].items()}
    # Nobody has set up the namespace.
    assert found.pop('search attributes') == 'failed'
    assert 'search-attribute create --namespace default --name HarnessAgent --type Keyword' in done.stdout
    assert found == dict.fromkeys(
        ('temporal', 'namespace', 'task queue', 'store', 'conversations', 'payloads', 'agents'), 'ok'
    )
    assert (done.status, done.json['ok']) == (1, False)


def test_doctor_says_of_each_thing_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TEMPORAL_ADDRESS', '127.0.0.1:1')
    monkeypatch.setenv('HARNESS_AGENTS', 'nowhere:agent')
    monkeypatch.setenv('HARNESS_CONVERSATIONS', 'nowhere:conversations')
    done = cli('doctor', '--store', 'sqlite:nowhere.db', '--json')
    found = {name: (check['status'], check['told']) for name, check in done.json['checks'].items()}
    assert done.status == 1
    assert found['temporal'][0] == 'failed'
    assert 'TEMPORAL_ADDRESS=127.0.0.1:1, without TLS' in found['temporal'][1]
    assert {found[name][0] for name in ('namespace', 'search attributes', 'task queue')} == {'skipped'}
    assert found['store'][0] == 'failed'
    assert found['payloads'][0] == 'skipped'
    assert found['conversations'] == ('failed', "'nowhere' cannot be loaded: No module named 'nowhere'.")
    assert found['agents'] == ('failed', "'nowhere' cannot be loaded: No module named 'nowhere'.")
    assert 'failed  agents: ' in cli('doctor').stdout
