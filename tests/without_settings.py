"""Work without the settings of whoever runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_PREFIXES = ('HARNESS_', 'TEMPORAL_')


def environment_without_settings() -> dict[str, str]:
    """Return this process's variables but for settings, for a process that a test starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)}


def leave_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go to a folder without a file of settings, and unset the variables."""
    monkeypatch.chdir(folder)
    for name in os.environ.keys() - environment_without_settings().keys():
        monkeypatch.delenv(name)
