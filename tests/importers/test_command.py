from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import Result
from typer.testing import CliRunner

from harness_temporal.cli.app import app
from harness_temporal.stores import FileStepStore, SqliteStepStore
from harness_temporal.stores.opening import open_store
from tests.conformance.opening import drop_schema
from tests.importers.comparing import PeerStore, assert_same
from tests.mongo_server import drop_database


def command(*arguments: str | Path, folder: Path, status: int = 0) -> Result:
    """Run the command in a thread: it has an event loop of its own."""

    def run() -> Result:
        return CliRunner().invoke(app, ['import', *map(str, arguments)], catch_exceptions=False)

    with chdir(folder), ThreadPoolExecutor(1) as executor:
        done = executor.submit(run).result()
    assert done.exit_code == status, done.stderr
    return done


def sums(peer: PeerStore) -> dict[str, int]:
    runs: Sequence[dict[str, list[object]]] = [*peer.view['runs'].values()]
    return {
        'runs': len(runs),
        'events': sum(len(run['events']) for run in runs),
        'snapshots': sum(len(run['snapshots']) for run in runs),
        'tool_effects': sum(len(run['effects']) for run in runs),
    }


async def test_import_from_a_path_into_a_path(files: PeerStore, tmp_path: Path) -> None:
    done = command('source/runs', 'new.db', folder=tmp_path)
    count = sums(files)
    assert done.stdout == (
        f'{count["runs"]} runs imported, with {count["events"]} events, {count["snapshots"]} snapshots and '
        f'{count["tool_effects"]} tool effects.\n'
    )
    assert done.stderr == ''
    target = SqliteStepStore(tmp_path / 'new.db')
    await assert_same(target, files)
    await target.aclose()


async def test_bad_run_is_told_and_the_status_is_1(sqlite: PeerStore, tmp_path: Path) -> None:
    connection = sqlite3.connect(sqlite.path)
    with connection:
        connection.execute("UPDATE runs SET started_at = '[bold]never[/bold]' WHERE run_id = 'child'")
    connection.close()
    done = command(sqlite.url, 'file:new', folder=tmp_path, status=1)
    assert done.stdout.startswith('6 runs imported, ')
    assert "\nRun 'child' cannot be imported: a RunRecord cannot be read: started_at: " in done.stdout
    assert done.stdout.endswith('\n1 runs were not imported.\n')
    target = FileStepStore(tmp_path / 'new')
    await assert_same(target, sqlite, but=['child'])
    as_json = json.loads(command(sqlite.url, 'file:new', '--json', folder=tmp_path, status=1).stdout)
    [failure] = as_json.pop('failures')
    assert failure['run_id'] == 'child'
    assert failure['error'].startswith("Run 'child' cannot be imported: ")
    assert (as_json['ok'], as_json['dry_run'], as_json['runs']) == (False, False, 6)


def test_dry_run_makes_nothing(files: PeerStore, tmp_path: Path) -> None:
    before = {*tmp_path.iterdir()}
    done = command(files.url, 'sqlite:new.db', '--dry-run', '--json', folder=tmp_path)
    assert json.loads(done.stdout) == {'ok': True, 'dry_run': True, **sums(files), 'failures': []}
    assert {*tmp_path.iterdir()} == before
    assert ' runs can be imported, ' in command(files.url, 'sqlite:new.db', '--dry-run', folder=tmp_path).stdout


@pytest.mark.parametrize(
    ('source', 'target', 'message'),
    [
        ('nowhere', 'new.db', "There is no 'nowhere' to tell the kind of store from; write `file:FOLDER`, "),
        ('file:nowhere', 'new.db', "There is no folder 'nowhere'."),
        ('file:nowhere', 'mysql://h/d', "'mysql' is no kind of store"),
        ('file:a', 'file:a', 'choose another place'),
        ('file:a', 'sqlite:a/../a/new.db', 'choose another place'),
        ('sqlite:a/runs.db', 'file:a', 'choose another place'),
        ('sqlite:runs.db', './runs.db', 'choose another place'),
        ('mongodb://h1,h2/d', 'mongodb://u:p@h2,h1/d?replicaSet=r', 'choose another place'),
        ('mongodb://h1', 'new.db', 'has to name the database'),
        ('postgresql://h/d?table=A;', 'new.db', "'A;' is no prefix"),
    ],
)
def test_what_cannot_be_is_told(
    source: str, target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ['import', source, target])
    assert (done.exit_code, done.stdout) == (1, '')
    assert done.stderr.startswith('error: ')
    assert message in done.stderr
    done = CliRunner().invoke(app, ['import', source, target, '--json'])
    assert done.exit_code == 1
    as_json = json.loads(done.stdout)
    assert as_json['ok'] is False
    assert message in as_json['error']
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ('source', 'driver', 'extra'), [('postgresql://h/d', 'asyncpg', 'postgres'), ('mongodb://h/d', 'pymongo', 'mongo')]
)
def test_missing_driver_is_told(source: str, driver: str, extra: str) -> None:
    code = f'import sys; sys.modules["{driver}"] = None; from harness_temporal.cli import main; main()'
    done = subprocess.run(
        [sys.executable, '-c', code, 'import', source, 'new.db'], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"needs {driver}: install 'harness-temporal[{extra}]'." in done.stderr


@pytest.mark.parametrize(
    'source',
    [
        pytest.param('postgresql://127.0.0.1:1/app', marks=pytest.mark.postgres),
        pytest.param('mongodb://127.0.0.1:1/app?serverSelectionTimeoutMS=300', marks=pytest.mark.mongo),
    ],
)
def test_server_that_is_away_is_told(source: str, tmp_path: Path) -> None:
    done = command(source, 'new.db', folder=tmp_path, status=1)
    assert 'error: the source database: it cannot be reached: ' in done.stderr


@pytest.mark.postgres
async def test_import_into_a_schema_of_postgres(files: PeerStore, postgres: str, tmp_path: Path) -> None:
    schema = f'imported_{uuid4().hex}'
    target = f'{postgres}?schema={schema}'
    command(files.url, target, folder=tmp_path)
    store = open_store(target)
    await assert_same(store, files)
    await store.aclose()
    await drop_schema(postgres, schema)


@pytest.mark.mongo
async def test_import_into_a_database_of_mongo(files: PeerStore, mongo: str, tmp_path: Path) -> None:
    database = f'imported_{uuid4().hex}'
    target = f'{mongo.rstrip("/")}/{database}'
    command(files.url, target, folder=tmp_path)
    store = open_store(target)
    await assert_same(store, files)
    await store.aclose()
    await drop_database(mongo, database)


@pytest.mark.postgres
def test_prefix_of_other_tables_is_asked_for(postgres: str, tmp_path: Path) -> None:
    done = command(postgres, 'new.db', folder=tmp_path, status=1)
    assert 'There is no table step_persistence_runs.' in done.stderr
    assert '`?table=NAME`' in done.stderr


@pytest.mark.mongo
def test_database_of_mongo_without_runs_is_told(mongo: str, tmp_path: Path) -> None:
    done = command(f'{mongo.rstrip("/")}/nothing_{uuid4().hex}', 'new.db', folder=tmp_path, status=1)
    assert 'has no step store in it' in done.stderr
