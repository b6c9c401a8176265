"""How a worker is configured: by `harness.toml` and, over it, by environment variables."""

from __future__ import annotations

from dataclasses import dataclass

from harness_temporal.hosting.settings import TemporalSettings, WorkerSettings


@dataclass(frozen=True)
class Settings:
    """All that a worker process needs to know."""

    temporal: TemporalSettings
    worker: WorkerSettings

    @classmethod
    def load(cls) -> Settings:
        """Read the file and the environment.

        Raises:
            ConfigurationError: A setting is missing, unknown or wrong. The message says which, and where it is set.
        """
        return cls(TemporalSettings.load(), WorkerSettings.load())
