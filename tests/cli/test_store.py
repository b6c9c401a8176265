from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from harness_temporal.conversations import ConversationSummary, SqliteConversationStore
from harness_temporal.records import utc_now
from harness_temporal.testing.samples import NOON, turns
from tests.cli.conftest import cli, given
from tests.cli.seeding import a_run, committed, cut_off, event, said

STORE = 'sqlite:runs.db'
LARGE = 'x' * 100_000


def changed(statement: str) -> None:
    with closing(sqlite3.connect('runs.db')) as connection, connection:
        connection.execute(statement)


def test_migrate_makes_a_store_and_again_changes_nothing() -> None:
    assert given('store', 'migrate', '--store', STORE) == {'store': 'SqliteStepStore', 'has_runs': False}
    before = Path('runs.db').read_bytes()
    assert given('store', 'migrate', '--store', STORE)['has_runs'] is False
    assert Path('runs.db').read_bytes() == before


def test_check_counts_what_is_there() -> None:
    committed(STORE, [a_run('run-1'), event('run-1', 'run_started'), said('run-1', LARGE, 'Hi')], cut_off('run-2'))
    assert given('store', 'check', '--store', STORE) == {
        'runs': 2,
        'events': 2,
        'snapshots': 2,
        'tool_effects': 1,
        'unresolved': 1,
        'blobs': 1,
        'bytes': len(LARGE),
        'problems': [],
    }
    assert 'All of it can be read' in cli('store', 'check', '--store', STORE).stdout


@pytest.mark.parametrize(
    ('damage', 'problem'),
    [
        ("UPDATE messages SET body = '{}'", "run 'run-1': message log: "),
        ("UPDATE media SET data = x'00'", 'is damaged'),
        ('DELETE FROM media', 'is missing.'),
    ],
)
def test_check_finds_damage(damage: str, problem: str) -> None:
    committed(STORE, [a_run('run-1'), said('run-1', LARGE, 'Hi')], [a_run('run-2'), said('run-2', 'Hello', 'Hi')])
    changed(damage)
    done = cli('store', 'check', '--store', STORE, '--json')
    assert done.status == 1
    assert done.json['ok'] is False
    assert done.json['runs'] == 2
    assert [line for line in done.json['problems'] if problem in line]
    shown = cli('store', 'check', '--store', STORE)
    assert problem in shown.stdout
    assert 'from a backup' in shown.stdout


def test_gc_deletes_old_runs_and_what_nothing_refers_to() -> None:
    old = utc_now() - timedelta(days=10)
    committed('file:runs', [a_run('old'), said('old', LARGE, 'Hi')], cut_off('unresolved'))
    for file in (path for path in Path('runs').rglob('*') if path.is_file()):
        os.utime(file, (old.timestamp(), old.timestamp()))
    assert given('store', 'gc', '--store', 'file:runs')['runs'] == []
    collected = given('store', 'gc', '--store', 'file:runs', '--expire-after-days', '1')
    assert collected['runs'] == ['old']
    assert (collected['messages'] > 0, collected['blobs']) == (True, 1)
    every = ('--expire-after-days', '1', '--include-unresolved')
    assert given('store', 'gc', '--store', 'file:runs', *every)['runs'] == ['unresolved']


def test_gc_deletes_old_conversations_with_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    committed(STORE, [a_run('talked', conversation_id='c')], [a_run('alone')])
    monkeypatch.setenv('HARNESS_CONVERSATIONS', 'heads:conversations')
    Path('heads.py').write_text(
        'from harness_temporal.conversations import SqliteConversationStore\n'
        "conversations = SqliteConversationStore('runs.db')\n"
    )
    saved_long_ago('c')
    assert given('store', 'gc', '--store', STORE)['conversations'] == []
    collected = given('store', 'gc', '--store', STORE, '--expire-conversations-after-days', '1')
    assert (collected['conversations'], collected['runs']) == (['c'], [])
    assert [run['run_id'] for run in given('runs', 'list', '--store', STORE)['runs']] == ['alone']


def saved_long_ago(conversation_id: str) -> None:
    async def save() -> None:
        store = SqliteConversationStore('runs.db')
        await store.save(summary=ConversationSummary(id=conversation_id), messages=turns(2))
        await store.aclose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('harness_temporal.conversations.protocol.utc_now', lambda: NOON)
        asyncio.run(save())


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('--grace-hours', '1'), '`grace` must be at least'),
        (('--include-unresolved',), 'is for `--expire-after-days`'),
        (('--expire-conversations-after-days', '1'), 'set HARNESS_CONVERSATIONS'),
    ],
)
def test_gc_that_would_be_wrong_is_refused(arguments: tuple[str, ...], message: str) -> None:
    committed(STORE, [a_run('run-1')])
    done = cli('store', 'gc', '--store', STORE, *arguments)
    assert done.status == 1
    assert message in done.stderr


def test_import_is_a_command_of_stores_too() -> None:
    done = cli('store', 'import', 'nowhere', 'new.db', '--json')
    assert (done.status, done.json['ok']) == (1, False)
    assert done == cli('import', 'nowhere', 'new.db', '--json')
