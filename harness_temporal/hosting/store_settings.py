"""Where the runs are, for whoever only looks at them: reading it imports neither agents nor Temporal."""

from __future__ import annotations

from typing import ClassVar

from pydantic_settings import SettingsConfigDict

from harness_temporal.hosting.section import Section


class StoreSettings(Section):
    """Where the command line finds the runs of the agents: the table `store`. The agents open their own store."""

    model_config = SettingsConfigDict(env_prefix='HARNESS_STORE_')
    table: ClassVar[str] = 'store'

    url: str | None = None
    """As `harness_temporal.stores.opening` takes it."""
