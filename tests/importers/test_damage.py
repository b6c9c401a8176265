"""What cannot be read is told, by run, and keeps nothing else from being imported."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.errors import (
    ConfigurationError,
    ExternalContentError,
    InvalidRunIdError,
    NotStorableError,
    RunImportError,
    StoreError,
    StoreUnavailableError,
)
from harness_temporal.importers import ImportReport, SqliteSource, import_runs
from harness_temporal.stores import FileStepStore, InMemoryStepStore, SqliteStepStore
from harness_temporal.testing.samples import a_run
from tests.importers.comparing import PeerStore, assert_same
from tests.importers.conftest import made_by_peer

IMAGE = bytes(range(256)) * 320
IMAGE_URI = f'media+sha256://{hashlib.sha256(IMAGE).hexdigest()}'
"""What a tool of the parent returned, and nothing else refers to."""


async def only_failure(source: PeerStore, *run_ids: str) -> RunImportError:
    """Import, make sure that exactly these runs are left out, wholly, and return what was said of the first."""
    target = InMemoryStepStore()
    report = await source.import_into(target)
    assert [failure.run_id for failure in report.failures] == [*run_ids]
    await assert_same(target, source, but=run_ids)
    dry = await source.import_into(InMemoryStepStore(), dry_run=True)
    assert [str(failure) for failure in dry.failures] == [str(failure) for failure in report.failures]
    return report.failures[0]


def change(path: Path, changed: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    changed(content)
    path.write_text(json.dumps(content))


def execute(source: PeerStore, sql: str, *parameters: object) -> None:
    connection = sqlite3.connect(source.path)
    with connection:
        assert connection.execute(sql, parameters).rowcount > 0
    connection.close()


# --- files ---


@pytest.mark.parametrize('log', ['events.jsonl', 'tool_effects.jsonl'])
@pytest.mark.parametrize('torn', ['{"run_id": "par', '{"run_id": "parent", "kind": "run_st', '7'])
async def test_last_line_that_was_not_written_to_its_end_is_left_out(files: PeerStore, log: str, torn: str) -> None:
    with (files.path / 'parent' / log).open('a') as file:
        file.write(torn)
    target = InMemoryStepStore()
    report = await files.import_into(target)
    assert report.failures == []
    await assert_same(target, files)


async def test_last_line_without_its_end_is_read(files: PeerStore) -> None:
    events = files.path / 'parent' / 'events.jsonl'
    events.write_text(events.read_text().removesuffix('\n'))
    target = InMemoryStepStore()
    await files.import_into(target)
    await assert_same(target, files)


async def test_damaged_line_in_the_middle_is_told(files: PeerStore) -> None:
    events = files.path / 'parent' / 'events.jsonl'
    events.write_text(events.read_text().replace('{', '{"torn', 1))
    failure = await only_failure(files, 'parent')
    assert re.match(r"Run 'parent' cannot be imported: events.jsonl is not JSON", str(failure))


async def test_missing_content_is_told_with_its_uri(files: PeerStore) -> None:
    (files.path / 'media' / f'{IMAGE_URI[-64:]}.bin').unlink()
    failure = await only_failure(files, 'parent')
    assert isinstance(failure, ExternalContentError)
    assert failure.uri == IMAGE_URI
    assert str(failure).startswith(
        f"Run 'parent' cannot be imported: the content '{IMAGE_URI}' is not in the store. If it was kept elsewhere"
    )


async def test_damaged_content_is_told_with_its_uri(files: PeerStore) -> None:
    (files.path / 'media' / f'{IMAGE_URI[-64:]}.bin').write_bytes(IMAGE[:-1])
    failure = await only_failure(files, 'parent')
    assert isinstance(failure, ExternalContentError)
    assert str(failure) == f"Run 'parent' cannot be imported: the content '{IMAGE_URI}' is damaged."


async def test_content_that_may_not_be_read_is_told_with_its_uri(files: PeerStore) -> None:
    blob = files.path / 'media' / f'{IMAGE_URI[-64:]}.bin'
    blob.unlink()
    blob.mkdir()
    failure = await only_failure(files, 'parent')
    assert isinstance(failure, ExternalContentError)
    assert f"the content '{IMAGE_URI}' cannot be read: the source folder: " in str(failure)


@pytest.mark.parametrize(
    ('run_id', 'known', 'newer', 'with_uri'),
    [('parent', 'escaped-keys-v1', 'escaped-keys-v2', True), ('lookalike', 'literal-v1', 'literal-v12', False)],
)
async def test_form_of_a_newer_release_is_told(
    files: PeerStore, run_id: str, known: str, newer: str, with_uri: bool
) -> None:
    snapshots = [*(files.path / run_id / 'snapshots').glob('*.json')]
    assert sum(known in path.read_text() for path in snapshots) > 0
    for path in snapshots:
        path.write_text(path.read_text().replace(known, newer))
    failure = await only_failure(files, run_id)
    assert f"in the form '{newer}', which this release does not know" in str(failure)
    assert isinstance(failure, ExternalContentError) == with_uri


async def test_several_bad_runs_are_all_told(files: PeerStore) -> None:
    (files.path / 'child' / 'run.json').write_text('{')
    change(files.path / 'next' / 'run.json', lambda run: run.update(started_at='2026-03-01T12:00:00'))
    change(files.path / 'failing' / 'run.json', lambda run: run.update(run_id='other'))
    change(files.path / 'lookalike' / 'snapshots' / '0.json', lambda snapshot: snapshot.pop('timestamp'))
    events = files.path / 'by-hand' / 'events.jsonl'
    events.write_text(events.read_text().replace('run_started', 'run_stopped'))
    target = InMemoryStepStore()
    report = await files.import_into(target)
    said = {failure.run_id: str(failure).partition('imported: ')[2] for failure in report.failures}
    assert said['child'].startswith('run.json is not JSON')
    assert 'needs a time zone' in said['next']
    assert said['failing'] == "a RunRecord is of the run 'other'."
    assert said['lookalike'] == 'a ContinuableSnapshot has no `timestamp`.'
    assert said['by-hand'].startswith('a StepEvent cannot be read: kind: ')
    await assert_same(target, files, but=[*said])


@pytest.mark.parametrize(
    ('messages', 'reason'),
    [
        (None, 'the messages of a snapshot are not a list.'),
        ([{'kind': 'request', 'parts': 'none'}], 'a message cannot be taken over: 0.request.parts: '),
    ],
)
async def test_messages_that_are_none_are_told(files: PeerStore, messages: object, reason: str) -> None:
    change(files.path / 'next' / 'snapshots' / '0.json', lambda snapshot: snapshot.update(messages=messages))
    assert reason in str(await only_failure(files, 'next'))


async def test_value_that_no_store_takes_is_told(files: PeerStore) -> None:
    events = files.path / 'parent' / 'events.jsonl'
    *before, last = events.read_text().splitlines()
    events.write_text('\n'.join([*before, re.sub('"step_index": \\d+', '"step_index": -1', last)]))
    failure = await only_failure(files, 'parent')
    assert isinstance(failure.__cause__, NotStorableError)


async def test_files_that_may_not_be_read_are_told(files: PeerStore) -> None:
    (files.path / 'next' / 'events.jsonl').unlink()
    (files.path / 'next' / 'events.jsonl').mkdir()
    assert 'its files cannot be read' in str(await only_failure(files, 'next'))


@pytest.mark.parametrize('url', ['file:nowhere', 'sqlite:nowhere'])
async def test_source_that_is_not_there_is_told(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"There is no .* 'nowhere'"):
        await PeerStore('', url, {}).import_into(InMemoryStepStore())
    assert os.listdir(tmp_path) == []


async def test_store_of_ours_is_no_source(tmp_path: Path) -> None:
    files, sqlite = FileStepStore(tmp_path / 'files'), SqliteStepStore(tmp_path / 'database')
    for store, url in [(files, f'file:{tmp_path}/files'), (sqlite, f'sqlite:{tmp_path}/database')]:
        await store.commit([a_run()])
        with pytest.raises(ConfigurationError, match='is a store of this package already'):
            await PeerStore('', url, {}).import_into(InMemoryStepStore())
        await store.aclose()


# --- SQLite ---


async def test_run_id_that_our_stores_refuse_is_told(sqlite: PeerStore) -> None:
    execute(sqlite, "INSERT INTO runs VALUES ('a/../b', NULL, NULL, NULL, '{}', '2026-03-01T12:00:00+00:00', NULL)")
    target = InMemoryStepStore()
    report = await sqlite.import_into(target)
    [failure] = report.failures
    assert failure.run_id == 'a/../b'
    assert isinstance(failure.__cause__, InvalidRunIdError)
    await assert_same(target, sqlite)


async def test_missing_content_in_a_table_is_told(sqlite: PeerStore) -> None:
    execute(sqlite, 'DELETE FROM media WHERE sha256 = ?', IMAGE_URI[-64:])
    failure = await only_failure(sqlite, 'parent')
    assert isinstance(failure, ExternalContentError)
    assert failure.uri == IMAGE_URI


@pytest.mark.parametrize(
    ('sql', 'reason'),
    [
        ("DELETE FROM snapshot_messages WHERE message LIKE '%And now%'", 'is missing'),
        ("UPDATE snapshot_messages SET message = '{}' WHERE message LIKE '%And now%'", 'is damaged'),
        (
            'DELETE FROM snapshot_message_refs WHERE position = 0 AND snapshot_seq IN (SELECT seq FROM snapshots WHERE'
            " run_id = 'next')",
            'has 1 of its 2 messages',
        ),
        ("UPDATE snapshots SET messages = '{' WHERE run_id = 'next'", 'not JSON'),
        ("UPDATE runs SET metadata = '[' WHERE run_id = 'next'", 'not JSON'),
        ("UPDATE events SET error = CAST(x'ff' AS TEXT) WHERE run_id = 'next'", 'its rows cannot be read'),
    ],
)
async def test_damaged_rows_are_told(sqlite: PeerStore, sql: str, reason: str) -> None:
    execute(sqlite, sql)
    assert reason in str(await only_failure(sqlite, 'next'))


async def test_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / 'text').write_text('no database, but a text that is long enough to look like the start of one' * 20)
    with pytest.raises(StoreError, match='not a database'):
        await PeerStore('', f'sqlite:{tmp_path}/text', {}).import_into(InMemoryStepStore())
    connection = sqlite3.connect(tmp_path / 'other')
    connection.execute('CREATE TABLE runs (id)')
    connection.close()
    with pytest.raises(ConfigurationError, match='has no step store in it'):
        await PeerStore('', f'sqlite:{tmp_path}/other', {}).import_into(InMemoryStepStore())


async def test_write_ahead_log_of_a_writer_that_died_is_read(sqlite: PeerStore, tmp_path: Path) -> None:
    writer = sqlite3.connect(sqlite.path)
    writer.execute('PRAGMA wal_autocheckpoint = 0')
    writer.execute("UPDATE runs SET agent_name = 'renamed'")
    writer.commit()
    assert f'{sqlite.path.name}-wal' in os.listdir(sqlite.path.parent)
    before = sqlite.path.read_bytes()
    target = InMemoryStepStore()
    await sqlite.import_into(target)
    assert {run.agent_name for run in await target.list_runs()} == {'renamed'}
    assert sqlite.path.read_bytes() == before
    writer.close()


async def test_write_to_the_database_meanwhile_is_told(sqlite: PeerStore) -> None:
    def write(done: int, total: int) -> None:
        if done == 2:
            execute(sqlite, "UPDATE runs SET agent_name = 'renamed'")

    with pytest.raises(StoreUnavailableError, match='Stop its writers, and try again'):
        await sqlite.import_into(InMemoryStepStore(), on_run=write)


async def test_path_with_characters_of_a_url_is_read(sqlite: PeerStore) -> None:
    odd = sqlite.path.with_name('a b?c#d%20.db')
    sqlite.path.rename(odd)
    source = SqliteSource(odd)
    report: ImportReport = await import_runs(source, InMemoryStepStore())
    await source.aclose()
    assert report.runs == len(sqlite.run_ids)


# --- servers ---


@pytest.mark.mongo
async def test_what_is_missing_in_mongo_is_told(mongo: str, database: str, tmp_path: Path) -> None:
    pymongo = pytest.importorskip('pymongo')
    url = f'{mongo.rstrip("/")}/{database}'
    source = made_by_peer('0.62', 'mongo', url, url, tmp_path)
    with pymongo.MongoClient(mongo) as client:
        for collection, query, reason in (
            ('media_chunks', {'files_id': IMAGE_URI[-64:], 'n': 1}, f"the content '{IMAGE_URI}' is damaged."),
            ('media', {'_id': IMAGE_URI[-64:]}, f"the content '{IMAGE_URI}' is not in the store."),
            ('snapshot_messages', {'message': {'$regex': IMAGE_URI[-64:]}}, 'is missing.'),
        ):
            assert client[database][collection].delete_one(query).deleted_count == 1
            assert reason in str(await only_failure(source, 'parent'))


@pytest.mark.postgres
async def test_what_is_missing_in_postgres_is_told(postgres: str, tmp_path: Path) -> None:
    asyncpg = pytest.importorskip('asyncpg')
    prefix = f'peer_{uuid4().hex[:20]}'
    url = f'{postgres}?table={prefix}'
    source = made_by_peer('0.62', 'postgres', url, url, tmp_path)
    for table, condition, reason in (
        ('media', f"sha256 = '{IMAGE_URI[-64:]}'", f"the content '{IMAGE_URI}' is not in the store."),
        ('messages', f"message LIKE '%{IMAGE_URI[-64:]}%'", 'is missing.'),
    ):
        connection = await asyncpg.connect(postgres)
        assert await connection.execute(f'DELETE FROM {prefix}_{table} WHERE {condition}') != 'DELETE 0'
        await connection.close()
        assert reason in str(await only_failure(source, 'parent'))
