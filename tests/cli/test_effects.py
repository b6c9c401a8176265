from __future__ import annotations

import getpass

import pytest

from tests.cli.conftest import cli, given
from tests.cli.seeding import a_payment, a_run, committed, cut_off, in_store

STORE = 'sqlite:runs.db'


@pytest.fixture(autouse=True)
def _runs(_in_an_empty_folder: None) -> None:
    committed(STORE, cut_off('run-1'), [a_run('run-2', agent_name='other', conversation_id='c'), a_payment('run-2')])


@pytest.mark.parametrize(
    ('arguments', 'found'),
    [
        ((), {'run-1', 'run-2'}),
        (('--run', 'run-1'), {'run-1'}),
        (('--agent', 'other'), {'run-2'}),
        (('--conversation', 'c'), {'run-2'}),
        (('--limit', '1'), {'run-2'}),
    ],
)
def test_list_has_what_waits_for_a_person(arguments: tuple[str, ...], found: set[str]) -> None:
    listed = given('effects', 'list', '--store', STORE, *arguments)['tool_effects']
    assert {effect['run_id'] for effect in listed} == found
    assert {effect['idempotency_key'] for effect in listed} == {'order-7'}


def test_a_call_that_had_its_effect_is_resolved_with_its_value() -> None:
    by = getpass.getuser()
    done = cli('effects', 'resolve', 'run-1', 'call-1', '--completed', '{"paid": 3}', '--store', STORE)
    assert done.stdout == f'pay (call-1) is completed now, says {by}.\n'
    run = given('runs', 'show', 'run-1', '--store', STORE)['run']
    [effect] = run['tool_effects']
    assert (effect['status'], effect['outcome'], effect['attempts']) == ('completed', 'returned', 2)
    assert (effect['value']['kind'], effect['value']['result']) == ('tool_return', {'paid': 3})
    assert effect['holder'].startswith(f'person:{by}:')
    assert run['events'][-1]['metadata']['harness.resolved_by'] == by
    assert 'No outcome is unknown.' in cli('effects', 'list', '--run', 'run-1', '--store', STORE).stdout


def test_a_call_without_effect_is_resolved_with_the_reason() -> None:
    arguments = ('--failed', 'the bank was closed', '--by', 'ada', '--store', STORE)
    effect = given('effects', 'resolve', 'run-2', 'run-2-key', *arguments)['tool_effect']
    assert (effect['status'], effect['outcome'], effect['error']) == (
        'failed',
        'failed',
        'ToolFailed: the bank was closed',
    )
    assert effect['holder'].startswith('person:ada:')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('run-1', 'call-1'), 'Give either `--completed JSON` or `--failed REASON`.'),
        (('run-1', 'call-1', '--completed', '1', '--failed', 'x'), 'Give either'),
        (('run-1', 'call-1', '--completed', 'done'), '--completed is no JSON'),
        (('run-1', 'call-9', '--failed', 'x'), "not exactly one unresolved call 'call-9'; unresolved: 'run-1-key'."),
        (('run-9', 'call-1', '--failed', 'x'), "The store has no run 'run-9'."),
    ],
)
def test_a_decision_about_nothing_is_refused(arguments: tuple[str, ...], message: str) -> None:
    done = cli('effects', 'resolve', *arguments, '--store', STORE)
    assert (done.status, done.stdout) == (1, '')
    assert message in done.stderr
    effects = in_store(STORE, lambda store: store.list_tool_effects(run_id='run-1'))
    assert [effect.status for effect in effects] == ['started']


def test_a_decision_stands() -> None:
    given('effects', 'resolve', 'run-1', 'call-1', '--completed', '1', '--store', STORE)
    done = cli('effects', 'resolve', 'run-1', 'call-1', '--failed', 'no', '--store', STORE)
    assert done.status == 1
    assert 'unresolved: none.' in done.stderr
