"""Answers to a run that suspended itself, from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.tools import DeferredToolResults

from harness_temporal.state.deferred_documents import results_document
from tests.cli.conftest import Office, cli, given
from tests.cli.seeding import a_run, committed, cut_off, event, said

pytestmark = pytest.mark.temporal


def answers(*, approvals: Mapping[str, Any] | None = None, calls: Mapping[str, Any] | None = None) -> str:
    """Write answers down, and return the file."""
    given_to = DeferredToolResults(approvals={**(approvals or {})}, calls={**(calls or {})})
    Path('answers.json').write_text(json.dumps(results_document(given_to)))
    return 'answers.json'


def suspended(prompt: str) -> str:
    run = given('run', 'clerk', prompt)
    assert run['status'] == 'suspended'
    return run['run_id']


def test_an_approval_lets_a_run_go_on_once(at_work: Office) -> None:
    done = cli('run', 'clerk', 'lend', '--conversation', 'c-lend')
    [run] = given('runs', 'list', '--conversation', 'c-lend')['runs']
    hint = f'`harness-temporal resume {run["run_id"]} --answers FILE`'
    assert hint in done.stdout
    shown = cli('runs', 'show', run['run_id']).stdout
    assert f'waits for answers to call-lend (lend): {hint}' in shown
    Path('by-hand.json').write_text('{"results": {"approvals": {"call-lend": true}}, "calls": {}}')
    resumed = given('resume', run['run_id'], '--answers', 'by-hand.json')
    assert (resumed['output'], resumed['conversation_id']) == ('It gave a book.', 'c-lend')
    again = cli('resume', run['run_id'], '--answers', 'by-hand.json')
    assert 'has completed' in again.stderr


def test_a_result_comes_from_standard_input(at_work: Office) -> None:
    run_id = suspended('measure')
    document = Path(answers(calls={'call-measure': 7})).read_text()
    assert cli('resume', run_id, '--answers', '-', typed=document).stdout == 'It gave 7.\n'
    assert 'standard input holds no answers' in cli('resume', run_id, '--answers', '-', typed='').stderr


@pytest.mark.parametrize(
    ('document', 'message'),
    [
        (None, 'The answers cannot be read from answers.json'),
        ('yes', 'answers.json holds no answers.'),
        ('{"call-measure": true}', '{"approvals": {"CALL": true}}'),
        (answers, "There is no answer to 'call-measure' (measure)."),
        (lambda: answers(calls={'call-1': 7}), "waits for no answer to 'call-1', but for call-measure (measure)."),
        (lambda: answers(approvals={'call-measure': True}), "'call-measure' waits for a result, not for an approval."),
        (
            lambda: answers(calls={'call-measure': 7}, approvals={'call-measure': True}),
            "There are two answers to 'call-measure'.",
        ),
    ],
    ids=['no file', 'no JSON', 'another form', 'none', 'another call', 'another kind', 'two'],
)
def test_answers_that_do_not_fit_start_nothing(at_work: Office, document: Any, message: str) -> None:
    run_id = suspended('measure')
    if isinstance(document, str):
        Path('answers.json').write_text(document)
    elif document is not None:
        document()
    done = cli('resume', run_id, '--answers', 'answers.json')
    assert done.status == 1
    assert message in done.stderr
    assert given('resume', run_id, '--answers', answers(calls={'call-measure': 1}))['output'] == 'It gave 1.'


def test_a_run_that_did_not_suspend_itself_takes_no_answers(at_work: Office) -> None:
    committed(at_work.store, [*cut_off('cut-run')], [a_run('done'), said('done', 'Hello', 'Hi')])
    for run_id in ('cut-run', 'done'):
        done = cli('resume', run_id, '--agent', 'clerk', '--answers', answers(approvals={'call-1': True}))
        assert done.status == 1
        assert f"Run '{run_id}' did not suspend itself" in done.stderr


def test_a_call_of_unknown_outcome_is_not_approved_again(at_work: Office) -> None:
    committed(at_work.store, [*cut_off('unknown'), event('unknown', 'run_completed')])
    done = cli('resume', 'unknown', '--answers', answers(approvals={'call-1': True}))
    assert "'call-1' waits for a result, not for an approval." in done.stderr


def test_a_turn_of_a_thread_is_answered_by_its_thread(at_work: Office) -> None:
    thread = given('threads', 'open', 'clerk', '--deps', '{"floor": 3}')['thread_id']
    asked = given('threads', 'send', thread, 'lend')
    done = cli('resume', asked['run_id'], '--answers', answers(approvals={'call-lend': True}))
    assert f'is a turn of the thread {thread}, which takes the answers' in done.stderr
    assert cli('approve', thread, 'call-lend').stdout == 'It gave a book.\n'


def test_standard_input_is_one_thing(at_work: Office) -> None:
    done = cli('resume', 'run', '--state', '-', '--answers', '-')
    assert 'not both' in done.stderr
