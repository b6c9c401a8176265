"""Load the agents that a setting or an argument names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.agent import AbstractAgent

from harness_temporal.errors import ConfigurationError
from harness_temporal.loading import load_attribute, load_module
from harness_temporal.temporal import HarnessDurability


def load_agents(names: Sequence[str]) -> list[AbstractAgent[Any, Any]]:
    """Import agents, each once: those named as `module:attribute`, and all with `HarnessDurability` of a `module`.

    Raises:
        ConfigurationError: A name leads to no agent, or to one without a name or without `HarnessDurability`.
    """
    agents = [agent for name in names for agent in (_of_module(name) if ':' not in name else [_named(name)])]
    return list({id(agent): agent for agent in agents}.values())


def _named(path: str) -> AbstractAgent[Any, Any]:
    agent = load_attribute(path, AbstractAgent)
    if HarnessDurability.from_agent(agent) is None:
        raise ConfigurationError(
            f"The agent {path!r} has no `HarnessDurability`; add it to the agent's `capabilities`, after "
            '`StepPersistence`.'
        )
    return agent


def _of_module(name: str) -> list[AbstractAgent[Any, Any]]:
    values: list[Any] = [*vars(load_module(name)).values()]
    found: list[AbstractAgent[Any, Any]] = [value for value in values if isinstance(value, AbstractAgent)]
    durable = [agent for agent in found if HarnessDurability.from_agent(agent) is not None]
    if not durable:
        without = f'its {len(found)} have no `HarnessDurability`' if found else 'there is none at its top level'
        raise ConfigurationError(f'The module {name!r} has no agent to run: {without}.')
    return durable
