from __future__ import annotations

import pytest

from harness_temporal.records import utc_now
from tests.cli.conftest import cli, given
from tests.cli.seeding import a_payment, a_run, committed, cut_off, event, said

STORE = 'sqlite:runs.db'


@pytest.fixture(autouse=True)
def _runs(_in_an_empty_folder: None) -> None:
    committed(
        STORE,
        [a_run('first', minutes=0, agent_name='clerk', conversation_id='c'), event('first', 'run_started')],
        [said('first', 'Hello', 'Hi', 'And?', 'Nothing'), event('first', 'run_completed', 2)],
        [a_run('second', minutes=1, agent_name='clerk', parent_run_id='first'), event('second', 'run_started')],
        [said('second', 'Hello', 'Hi', 'Why?', 'So'), event('second', 'run_failed', 3, 'ValueError: no [x]')],
        [a_run('third', minutes=2, agent_name='other', parent_run_id='second')],
        cut_off('fourth'),
    )


def ids(*arguments: str) -> list[str]:
    return [run['run_id'] for run in given('runs', 'list', '--store', STORE, *arguments)['runs']]


@pytest.mark.parametrize(
    ('arguments', 'found'),
    [
        ((), ['third', 'second', 'fourth', 'first']),
        (('--limit', '2'), ['third', 'second']),
        (('--agent', 'clerk', '--limit', '1'), ['second']),
        (('--conversation', 'c'), ['first']),
        (('--parent', 'first'), ['second']),
        (('--status', 'completed'), ['first']),
        (('--status', 'failed'), ['second']),
        (('--status', 'running'), ['fourth']),
        (('--status', 'unknown'), ['third']),
        (('--since', '2026-03-01T12:01'), ['third', 'second']),
        (('--since', '2026-03-01T21:02+09:00'), ['third']),
        (('--since', '1m'), []),
        (('--agent', 'nobody'), []),
    ],
)
def test_list_is_narrowed_by_filters(arguments: tuple[str, ...], found: list[str]) -> None:
    assert sorted(ids(*arguments)) == sorted(found)
    assert [run for run in ids(*arguments) if run != 'fourth'] == [run for run in found if run != 'fourth']


def test_list_says_how_runs_are() -> None:
    runs = {run['run_id']: run for run in given('runs', 'list', '--store', STORE)['runs']}
    assert [(runs[name]['status'], runs[name]['steps'], runs[name]['unresolved']) for name in sorted(runs)] == [
        ('completed', 2, 0),
        ('running', 0, 1),
        ('failed', 3, 0),
        ('unknown', 0, 0),
    ]
    assert runs['second']['error'] == 'ValueError: no [x]'
    assert runs['first']['started_at'].startswith('2026-03-01T12:00')


def test_table_has_ids_in_one_piece_and_text_as_it_is() -> None:
    long = 'run-' + 'x' * 150
    committed(STORE, [a_run(long, minutes=9, agent_name='[bold]a[/bold]')])
    shown = cli('runs', 'list', '--store', STORE).stdout
    assert f'{long}  [bold]a[/bold]  unknown' in shown
    assert cli('runs', 'list', '--store', STORE, '--agent', 'x').stdout == 'No run matches.\n'


def test_since_is_a_time_ago_or_a_date() -> None:
    committed(STORE, [a_run('now')], [a_run('new', minutes=int((utc_now().timestamp() - 1_772_366_400) // 60))])
    assert ids('--since', '1h') == ['new']
    done = cli('runs', 'list', '--store', STORE, '--since', 'yesterday')
    assert (done.status, done.stdout) == (1, '')
    assert "--since is 'yesterday': write how long ago" in done.stderr


def test_show_has_all_but_the_messages() -> None:
    run = given('runs', 'show', 'fourth', '--store', STORE)['run']
    assert [item['kind'] for item in run['events']] == ['run_started']
    assert [(item['tool_name'], item['status']) for item in run['tool_effects']] == [('pay', 'started')]
    assert (run['latest_snapshot']['state'], run['latest_snapshot']['messages']) == ('interrupted', 2)
    assert run['settled_snapshot'] is None
    shown = cli('runs', 'show', 'fourth', '--store', STORE).stdout
    assert 'The outcome of 1 tool calls is unknown: `harness-temporal effects list`.' in shown
    assert '`harness-temporal fork first`' in cli('runs', 'show', 'first', '--store', STORE).stdout
    shown = cli('runs', 'show', 'second', '--store', STORE).stdout
    assert 'ValueError: no [x]' in shown
    assert '`harness-temporal resume second`' in shown
    assert 'no snapshot' in cli('runs', 'show', 'third', '--store', STORE).stdout


def test_tree_has_what_the_tools_of_a_run_started() -> None:
    tree = given('runs', 'tree', 'first', '--store', STORE)['tree']
    assert tree['children'][0]['run_id'] == 'second'
    assert [child['run_id'] for child in tree['children'][0]['children']] == ['third']
    lines = cli('runs', 'tree', 'first', '--store', STORE).stdout.splitlines()
    assert lines == [
        'first (clerk, completed, 2 steps)',
        '└── second (clerk, failed, 3 steps)',
        '    └── third (other, unknown, 0 steps)',
    ]


def test_tree_of_runs_that_are_each_others_parents_ends() -> None:
    committed(STORE, [a_run('a', parent_run_id='b'), a_run('b', parent_run_id='a')])
    tree = given('runs', 'tree', 'a', '--store', STORE)['tree']
    assert [(child['run_id'], child['children']) for child in tree['children']] == [('b', [])]


def test_diff_says_where_two_runs_part() -> None:
    committed(STORE, [a_payment('first', status='completed')], [a_payment('second')])
    found = given('runs', 'diff', 'first', 'second', '--store', STORE)
    assert found['shared_messages'] == 2
    assert [message['parts'][0]['content'] for message in found['left']['messages']] == ['And?', 'Nothing']
    assert [message['parts'][0]['content'] for message in found['right']['messages']] == ['Why?', 'So']
    assert [effect['status'] for effect in found['left']['tool_effects']] == ['completed']
    assert [effect['status'] for effect in found['right']['tool_effects']] == ['started']
    shown = cli('runs', 'diff', 'first', 'second', '--store', STORE).stdout
    assert 'The first 2 messages say the same.' in shown
    assert 'model: Nothing' in shown


def test_diff_of_a_run_with_itself_is_empty() -> None:
    found = given('runs', 'diff', 'fourth', 'fourth', '--store', STORE)
    assert (found['shared_messages'], found['left']['messages'], found['left']['tool_effects']) == (2, [], [])


def test_tail_ends_with_the_run_and_gives_a_line_for_each_event() -> None:
    done = cli('runs', 'tail', 'second', '--store', STORE)
    assert [line.split('  ')[2] for line in done.stdout.splitlines()] == ['run started', 'run failed']
    assert cli('runs', 'tail', 'fourth', '--store', STORE, '--no-follow', '--json').json['kind'] == 'run_started'
