"""The environment that workers run in.

The peer pins Pydantic AI exactly, so it gets an environment of its own; a comparison with it runs every variant there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / 'benchmarks' / 'peer-requirements.txt'
PEER_ENVIRONMENT = ROOT / '.bench-env'


def worker_python(*, peer: bool) -> Path:
    """Return the interpreter for the workers: this one, or that of the peer's environment, made on first use.

    Raises:
        RuntimeError: `uv` is needed and is not there.
    """
    return _peer_python() if peer else Path(sys.executable)


def _peer_python() -> Path:
    python = PEER_ENVIRONMENT / 'bin' / 'python'
    stamp = PEER_ENVIRONMENT / 'requirements.sha256'
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    uv = os.environ.get('UV') or shutil.which('uv')
    if uv is None:
        raise RuntimeError('The environment of the peer is made with `uv`: install it, or pass `--no-peer`.')
    print(f'making {PEER_ENVIRONMENT} ...', file=sys.stderr)
    _run(uv, 'venv', '--clear', '--python', sys.executable, PEER_ENVIRONMENT)
    # The requirements are complete, and the peer's pin is not to be argued with by this package's own bounds.
    _run(uv, 'pip', 'install', '--python', python, '--no-deps', '--requirement', REQUIREMENTS, '--editable', ROOT)
    stamp.write_text(wanted)
    return python


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'`{" ".join(map(str, command))}` failed:\n{done.stderr[-4000:]}')
