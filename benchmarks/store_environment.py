"""Where stores are measured: the environment of the workers with database drivers, and one server of each kind.

The servers are those of the tests: they do not wait for the disk, for either package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.environment import PEER_ENVIRONMENT, ROOT, worker_python
from tests.mongo_server import mongo_url
from tests.postgres_server import postgres_dsn

REQUIREMENTS = ROOT / 'benchmarks' / 'store-requirements.txt'
STORES = ('memory', 'file', 'sqlite', 'postgres', 'mongo')


def store_python(*, peer: bool) -> Path:
    """Return an interpreter with the drivers; with `peer`, one in which both packages are installed.

    Raises:
        RuntimeError: `uv` is needed and is not there, or it failed.
    """
    python = worker_python(peer=peer)
    if not peer:
        return python
    # In the peer's environment, so that a new one starts without it.
    stamp = PEER_ENVIRONMENT / 'store-requirements.sha256'
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    uv = os.environ.get('UV') or shutil.which('uv')
    if uv is None:
        raise RuntimeError(
            "The drivers are added to the peer's environment with `uv`: install it, or pass `--no-peer`."
        )
    install = (uv, 'pip', 'install', '--python', python, '--no-deps', '--requirement', REQUIREMENTS)
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'the drivers were not installed:\n{done.stderr[-4000:]}')
    stamp.write_text(wanted)
    return python


@contextmanager
def addresses(stores: Sequence[str]) -> Generator[dict[str, str]]:
    """Yield where each kind of store is to be: a folder, or the address of a server that runs meanwhile."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix='benchmark-'))
        found = dict.fromkeys(stores, folder)
        if 'postgres' in stores:
            found['postgres'] = stack.enter_context(postgres_dsn())
        if 'mongo' in stores:
            found['mongo'] = stack.enter_context(mongo_url())
        yield found
