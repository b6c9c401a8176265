"""Stores that the peer made, one of each layout, for the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import missing_service
from tests.importers.comparing import PeerStore
from tests.importers.peer.environment import HERE, EnvironmentMissing, peer_python, run
from tests.mongo_server import drop_database

UPGRADED = '0.36-then-0.62'
LAYOUTS = [
    pytest.param((version, backend), id=f'{backend}-{version}', marks=marks)
    for backend, versions, marks in [
        ('file', ('0.36', '0.62', UPGRADED), ()),
        ('sqlite', ('0.36', '0.62', UPGRADED), ()),
        ('mongo', ('0.36', '0.62', UPGRADED), pytest.mark.mongo),
        ('postgres', ('0.62',), pytest.mark.postgres),
    ]
    for version in versions
]


def made_by_peer(version: str, backend: str, place: str, url: str, folder: Path) -> PeerStore:
    view, prefixes = folder / 'view.json', list[str]()
    try:
        for each in version.split('-then-'):
            prefixes.append(f'{each}-' if prefixes else '')
            run(peer_python(each), HERE / 'make_store.py', backend, place, view, *prefixes)
    except EnvironmentMissing as error:
        missing_service(f'no environment for the peer: {error}')
    return PeerStore(backend, url, json.loads(view.read_text()))


@pytest.fixture(scope='session', params=LAYOUTS)
def peer_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerStore]:
    """Yield a store of each layout. Tests that change it take a copy."""
    version, backend = request.param
    folder = tmp_path_factory.mktemp(f'{backend}-{version}')
    if backend in ('file', 'sqlite'):
        place = folder / 'source' / 'runs'
        yield made_by_peer(version, backend, str(place), f'{backend}:{place}', folder)
    elif backend == 'mongo':
        server, database = request.getfixturevalue('mongo'), f'peer_{uuid4().hex}'
        url = f'{server.rstrip("/")}/{database}'
        yield made_by_peer(version, backend, url, url, folder)
        asyncio.run(drop_database(server, database))
    else:
        url = f'{request.getfixturevalue("postgres")}?table=peer_{uuid4().hex[:20]}'
        yield made_by_peer(version, backend, url, url, folder)


@pytest.fixture(scope='session')
def made_files(tmp_path_factory: pytest.TempPathFactory) -> PeerStore:
    """Return a folder of the newer release."""
    folder = tmp_path_factory.mktemp('files')
    place = folder / 'source' / 'runs'
    return made_by_peer('0.62', 'file', str(place), f'file:{place}', folder)


@pytest.fixture(scope='session')
def made_sqlite(tmp_path_factory: pytest.TempPathFactory) -> PeerStore:
    """Return a SQLite database of the newer release."""
    folder = tmp_path_factory.mktemp('sqlite')
    place = folder / 'source' / 'runs.db'
    return made_by_peer('0.62', 'sqlite', str(place), f'sqlite:{place}', folder)


@pytest.fixture
def files(made_files: PeerStore, tmp_path: Path) -> PeerStore:
    """Return a copy of a folder, to spoil."""
    return made_files.copied_to(tmp_path / 'source')


@pytest.fixture
def sqlite(made_sqlite: PeerStore, tmp_path: Path) -> PeerStore:
    """Return a copy of a database, to spoil."""
    return made_sqlite.copied_to(tmp_path / 'source')
