from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness_temporal.errors import ConfigurationError
from harness_temporal.stores import FileStepStore, SqliteStepStore
from harness_temporal.stores.opening import FileLocation, ServerLocation, open_store, parse_location
from harness_temporal.testing.samples import a_run


@pytest.mark.parametrize(
    ('text', 'location'),
    [
        ('file:runs', FileLocation('file', Path('runs'))),
        ('file:/data/runs', FileLocation('file', Path('/data/runs'))),
        ('file:a:b', FileLocation('file', Path('a:b'))),
        ('sqlite:runs', FileLocation('sqlite', Path('runs'))),
        ('runs.db', FileLocation('sqlite', Path('runs.db'))),
        ('./runs.sqlite3', FileLocation('sqlite', Path('runs.sqlite3'))),
    ],
)
def test_paths(text: str, location: FileLocation) -> None:
    assert parse_location(text) == location


def test_path_that_is_there_needs_no_scheme(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    assert parse_location(str(tmp_path)) == FileLocation('file', tmp_path)
    assert parse_location(str(tmp_path / 'file')) == FileLocation('sqlite', tmp_path / 'file')


@pytest.mark.parametrize(
    ('text', 'kind', 'url', 'parameters', 'database'),
    [
        ('postgresql://u:p@h/app', 'postgresql', 'postgresql://u:p@h/app', {}, 'app'),
        (
            'postgres://h/app?schema=s&sslmode=require',
            'postgresql',
            'postgres://h/app?sslmode=require',
            {'schema': 's'},
            'app',
        ),
        ('postgresql:///app?host=/run', 'postgresql', 'postgresql:///app?host=/run', {}, 'app'),
        ('mongodb://a:1,b:2/app?replicaSet=r', 'mongodb', 'mongodb://a:1,b:2/app?replicaSet=r', {}, 'app'),
        ('mongodb+srv://h/my%20app', 'mongodb', 'mongodb+srv://h/my%20app', {}, 'my app'),
        ('mongodb://h', 'mongodb', 'mongodb://h', {}, ''),
    ],
)
def test_servers(text: str, kind: str, url: str, parameters: dict[str, str], database: str) -> None:
    location = parse_location(text, parameters=('schema',))
    assert isinstance(location, ServerLocation)
    assert (location.kind, location.url, location.parameters) == (kind, url, parameters)
    assert location.database == database


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('mysql://h/app', "'mysql' is no kind of store"),
        ('sqlite:///runs.db', 'as `sqlite:PATH`, without `//`'),
        ('file://runs', 'as `file:PATH`, without `//`'),
        ('sqlite:', 'names no path'),
        ('', 'to tell the kind of store from; write `file:FOLDER`, `sqlite:FILE`'),
        ('runs', 'to tell the kind of store from'),
    ],
)
def test_what_is_no_store_is_told_how_to_write_one(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        open_store(text)
    assert message in str(caught.value)


async def test_stores_of_paths_are_opened(tmp_path: Path) -> None:
    for text, kind in [(f'file:{tmp_path}/runs', FileStepStore), (f'{tmp_path}/runs.db', SqliteStepStore)]:
        store = open_store(text)
        assert isinstance(store, kind)
        assert os.listdir(tmp_path) == ([] if kind is FileStepStore else ['runs'])
        await store.commit([a_run()])
        await store.aclose()
    assert {*os.listdir(tmp_path)} >= {'runs', 'runs.db'}


def test_mongo_needs_a_database() -> None:
    with pytest.raises(ConfigurationError, match='has to name the database'):
        open_store('mongodb://localhost')


@pytest.mark.postgres
async def test_schema_of_postgres_is_in_the_url(postgres: str) -> None:
    pytest.importorskip('asyncpg')
    with pytest.raises(ConfigurationError, match='schema'):
        open_store(f'{postgres}?schema=No Schema')
