"""Environments that are mounted in a run, and the portable data that their providers keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from harness_temporal.errors import StateError
from harness_temporal.state.namespaces import EnvironmentState


class EnvironmentSource(Protocol):
    """A mounted environment whose provider keeps portable data of it."""

    @property
    def provider_key(self) -> str:
        """Which provider's data it is."""
        ...

    def environment_state(self) -> EnvironmentState:
        """Return the data as it is now. It must not do I/O: it is read at every export."""
        ...


def environment_states(sources: Mapping[str, EnvironmentSource]) -> dict[str, EnvironmentState]:
    """Return the data of all mounted environments, by their names.

    Raises:
        StateError: A source gives the data of another provider (`state_invalid`).
    """
    states: dict[str, EnvironmentState] = {}
    for name, source in sources.items():
        state = states[name] = source.environment_state()
        if state.provider_key != source.provider_key:
            raise StateError(
                'state_invalid',
                f'Environment {name!r} is of {source.provider_key!r}, and its state of {state.provider_key!r}.',
                {'mount': name},
            )
    return states
