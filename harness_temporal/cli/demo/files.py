"""The demo's files in its temporary folder, as the director and its workers share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DemoFiles:
    """Names of the files."""

    folder: Path

    @property
    def store(self) -> Path:
        """The step store's database."""
        return self.folder / 'runs.db'

    @property
    def ledger(self) -> Path:
        """What the outside world charged: a line per payment. Not the store's effect ledger."""
        return self.folder / 'payments.txt'

    def marker(self, name: str) -> Path:
        """Return the file that exists once a tool has been in its middle, or a worker is ready."""
        return self.folder / f'{name}.marker'

    def log(self, process: str) -> Path:
        """Return where a process writes what it has to say."""
        return self.folder / f'{process}.log'

    def payments(self) -> list[str]:
        """Read the payments."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []
