"""The command as a process, as a person starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.without_settings import environment_without_settings

REPOSITORY = Path(__file__).parents[2]
COMMAND = [sys.executable, '-c', 'from harness_temporal.cli import main; main()']


def environment(**variables: str) -> dict[str, str]:
    """Return this process's variables without settings of whoever runs the tests."""
    return {**environment_without_settings(), 'PYTHONPATH': str(REPOSITORY), **variables}


def run(*arguments: str, folder: Path, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**(variables or {})),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
