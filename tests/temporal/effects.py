"""Effects that a test counts from outside, as lines of a file. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path


def note(folder: Path, name: str, text: str = '') -> None:
    """Do an effect that the test can count from outside."""
    handle = os.open(folder / name, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        os.write(handle, f'{text}\n'.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def noted(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []
