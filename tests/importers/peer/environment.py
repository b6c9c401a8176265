"""Environments of the peer's releases, one each: the peer and this package may need different versions of the rest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent.parent.parent / '.peer-envs'


class EnvironmentMissing(Exception):
    """The environment cannot be made here."""


def peer_python(version: str) -> Path:
    """Return the interpreter of a release's environment, which is made on first use and kept.

    Raises:
        EnvironmentMissing: It cannot be made, as where there is no network.
    """
    requirements = HERE / f'requirements-{version}.txt'
    environment = ENVIRONMENTS / version
    python, stamp = environment / 'bin' / 'python', environment / 'requirements.sha256'
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Workers of `pytest-xdist` come here at the same time.
    with (ENVIRONMENTS / f'{version}.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (ENVIRONMENTS / '.gitignore').write_text('*\n')
        if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
            uv = os.environ.get('UV') or shutil.which('uv')
            if uv is None:
                raise EnvironmentMissing('`uv`, which makes it, is not installed')
            try:
                run(uv, 'venv', '--clear', '--python', sys.executable, environment)
                run(uv, 'pip', 'install', '--python', python, '--no-deps', '--requirement', requirements)
            except RuntimeError as error:
                raise EnvironmentMissing(str(error)) from error
            stamp.write_text(wanted)
    return python


def run(*command: str | Path) -> None:
    """Run a program to its end.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'`{" ".join(map(str, command))}` failed:\n{done.stderr[-4000:]}')
