"""What a campaign is told."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.faults.places import StoreKind


@dataclass(frozen=True, kw_only=True)
class Settings:
    seed: int
    store: StoreKind
    objects: bool = False
    """Whether large values are in an object store."""
    runs: int
    kills: int
    """Workers that are killed, told to end or stopped while runs are under way."""
    workers: int = 4
    at_once: int = 8
    """Runs under way at the same time."""
    quiet_seconds: float = 180
    """How long healthy workers have to bring what is left to its end. A run that does not get there is lost."""

    def again(self) -> str:
        """Return the command that runs this campaign."""
        return (
            f'uv run python -m benchmarks.faults --seed {self.seed} --store {self.store} --runs {self.runs} '
            f'--kills {self.kills} --workers {self.workers} --at-once {self.at_once}{" --objects" * self.objects}'
        )
