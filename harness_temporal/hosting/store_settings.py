"""Where the runs are, for whoever only looks at them: reading it imports neither agents nor Temporal."""

from __future__ import annotations

from typing import ClassVar

from pydantic_settings import SettingsConfigDict

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.hosting.section import Section
from harness_temporal.loading import load_attribute


class StoreSettings(Section):
    """Where the command line finds the runs of the agents: the table `store`. The agents open their own store."""

    model_config = SettingsConfigDict(env_prefix='HARNESS_STORE_')
    table: ClassVar[str] = 'store'

    url: str | None = None
    """As `harness_temporal.stores.opening` takes it."""
    key_ring: str | None = None
    """The `KeyRing` that its content is encrypted with, as `module:attribute`; not the keys themselves."""

    def load_key_ring(self) -> KeyRing | None:
        """Import the keys, if there are any.

        Raises:
            ConfigurationError: The name does not lead to a `KeyRing`.
        """
        return load_attribute(self.key_ring, KeyRing) if self.key_ring is not None else None
