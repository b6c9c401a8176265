"""Stores that the peer made."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncIterator
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


@pytest.fixture(params=LAYOUTS)
async def peer_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PeerStore]:
    """Yield a store of each layout."""
    version, backend = request.param
    if backend in ('file', 'sqlite'):
        place = tmp_path / 'source' / 'runs'
        yield made_by_peer(version, backend, str(place), f'{backend}:{place}', tmp_path)
    elif backend == 'mongo':
        server, database = request.getfixturevalue('mongo'), f'peer_{uuid4().hex}'
        url = f'{server.rstrip("/")}/{database}'
        yield made_by_peer(version, backend, url, url, tmp_path)
        await drop_database(server, database)
    else:
        url = f'{request.getfixturevalue("postgres")}?table=peer_{uuid4().hex[:20]}'
        yield made_by_peer(version, backend, url, url, tmp_path)


def made_once(backend: str, name: str, tmp_path_factory: pytest.TempPathFactory) -> PeerStore:
    """Return a store of the newer release, which all workers of `pytest-xdist` share. Tests do not change it."""
    session = tmp_path_factory.getbasetemp()
    folder = (session.parent if 'PYTEST_XDIST_WORKER' in os.environ else session) / f'peer-{backend}'
    folder.mkdir(exist_ok=True)
    place, view = folder / 'source' / name, folder / 'view.json'
    with (folder / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not view.exists():
            return made_by_peer('0.62', backend, str(place), f'{backend}:{place}', folder)
    return PeerStore(backend, f'{backend}:{place}', json.loads(view.read_text()))


@pytest.fixture(scope='session')
def made_files(tmp_path_factory: pytest.TempPathFactory) -> PeerStore:
    """Return a folder."""
    return made_once('file', 'runs', tmp_path_factory)


@pytest.fixture(scope='session')
def made_sqlite(tmp_path_factory: pytest.TempPathFactory) -> PeerStore:
    """Return a SQLite database."""
    return made_once('sqlite', 'runs.db', tmp_path_factory)


@pytest.fixture
def files(made_files: PeerStore, tmp_path: Path) -> PeerStore:
    """Return a copy of a folder, to spoil."""
    return made_files.copied_to(tmp_path / 'source')


@pytest.fixture
def sqlite(made_sqlite: PeerStore, tmp_path: Path) -> PeerStore:
    """Return a copy of a database, to spoil."""
    return made_sqlite.copied_to(tmp_path / 'source')
