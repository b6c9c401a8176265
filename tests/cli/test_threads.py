"""Threads from one terminal, and decisions from another."""

from __future__ import annotations

import time

import pytest

from tests.cli.conftest import Office, cli, given

pytestmark = pytest.mark.temporal


@pytest.fixture
def thread(at_work: Office) -> str:
    return given('threads', 'open', 'clerk', '--name', 'Desk 3', '--deps', '{"floor": 3}')['thread_id']


def test_a_thread_answers_in_its_conversation(thread: str) -> None:
    assert cli('threads', 'send', thread, 'Hello').stdout == 'You said Hello.\n'
    assert given('threads', 'send', thread, 'floor')['output'] == 'It gave floor 3.'
    shown = given('threads', 'show', thread)
    assert (shown['state'], shown['name'], shown['turn']['turn']) == ('idle', 'Desk 3', 2)
    assert [step['tools'] for step in shown['steps']] == [['floor'], []]
    assert len(given('runs', 'list', '--conversation', thread)['runs']) == 2


def test_the_same_message_with_the_same_key_is_one(thread: str) -> None:
    first = given('threads', 'send', thread, 'Hello', '--key', 'k')
    assert given('threads', 'send', thread, 'Hello', '--key', 'k')['turn'] == first['turn'] == 1


def test_a_call_is_approved_from_a_second_terminal(thread: str) -> None:
    done = cli('threads', 'send', thread, 'lend')
    assert done.status == 0
    assert 'call-lend  lend  approval' in done.stdout
    assert f'`harness-temporal approve {thread} CALL`' in done.stdout
    assert given('threads', 'show', thread)['state'] == 'waiting_for_approval'
    assert cli('approve', thread, 'call-lend').stdout == 'It gave a book.\n'


def test_calls_are_denied_with_a_reason(thread: str) -> None:
    assert given('threads', 'send', thread, 'lend')['status'] == 'waiting_for_approval'
    assert given('deny', thread, '--all', '--reason', 'It is mine')['output'] == 'It gave It is mine.'


def test_the_result_of_an_outside_call_is_given(thread: str) -> None:
    [pending] = given('threads', 'send', thread, 'measure')['pending']
    assert (pending['tool'], pending['kind']) == ('measure', 'external')
    assert given('threads', 'answer', thread, 'call-measure', '7')['output'] == 'It gave 7.'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('approve', '{thread}'), 'Name the calls, or give `--all`.'),
        (('approve', '{thread}', 'call-lend', '--all'), 'Name the calls, or give `--all`.'),
        (('approve', '{thread}', 'call-lend'), 'wait'),
        (('threads', 'send', '{thread}', ''), 'empty'),
        (('threads', 'cancel', '{thread}'), 'No turn is on'),
        (('threads', 'answer', '{thread}', 'call-1', 'seven'), 'The result is no JSON'),
        (('threads', 'send', 'thread_nobody', 'Hello'), 'Check the id'),
        (('threads', 'open', 'clerk', '--thread', 'Not An Id'), 'thread_id'),
    ],
)
def test_what_cannot_be_is_told(thread: str, arguments: tuple[str, ...], message: str) -> None:
    done = cli(*(argument.format(thread=thread) for argument in arguments))
    assert done.status == 1
    assert message in done.stderr
    assert 'Traceback' not in done.stderr


def test_open_threads_are_listed(thread: str) -> None:
    deadline = time.monotonic() + 20
    # The server lists what it has heard of a moment later.
    while thread not in {item['thread_id'] for item in given('threads', 'list')['threads']}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert f'{thread}  running' in cli('threads', 'list').stdout


def test_a_thread_is_renamed_and_closed(thread: str) -> None:
    assert given('threads', 'rename', thread, 'Desk 4')['name'] == 'Desk 4'
    assert given('threads', 'show', thread)['name'] == 'Desk 4'
    assert cli('threads', 'close', thread).stdout == f'Thread {thread} takes no more messages.\n'
    done = cli('threads', 'send', thread, 'Hello')
    assert done.status == 1
    assert 'is closed' in done.stderr
