"""How a worker is configured: by environment variables, so that one image runs anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_ai.agent import AbstractAgent

from harness_temporal.errors import ConfigurationError
from harness_temporal.loading import load_attribute
from harness_temporal.temporal import MaintenanceInput


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker needs to know."""

    agents: tuple[str, ...]
    """`HARNESS_AGENTS`: the agents to run, as `module:attribute`, separated by commas."""
    address: str = 'localhost:7233'
    """`TEMPORAL_ADDRESS`: host and port of the Temporal frontend."""
    namespace: str = 'default'
    """`TEMPORAL_NAMESPACE`."""
    task_queue: str = 'harness'
    """`HARNESS_TASK_QUEUE`."""
    build_id: str = 'dev'
    """`HARNESS_BUILD_ID`: names this build of the worker. Without one Temporal hashes every module at start-up."""
    graceful_shutdown: timedelta = timedelta(seconds=30)
    """`HARNESS_GRACEFUL_SHUTDOWN_SECONDS`: how long running activities may take to finish after SIGTERM."""
    maintenance: MaintenanceInput | None = None
    """`HARNESS_MAINTENANCE`: `on` has a schedule collect what nothing in the stores refers to. With
    `HARNESS_EXPIRE_AFTER_DAYS` it also deletes runs that were idle that long."""
    maintenance_interval: timedelta = timedelta(days=1)
    """`HARNESS_MAINTENANCE_HOURS`: how often, 24 by default."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> WorkerSettings:
        """Read the settings.

        Raises:
            ConfigurationError: `HARNESS_AGENTS` is missing, or a value is not what it should be.
        """
        agents = tuple(filter(None, (name.strip() for name in environment.get('HARNESS_AGENTS', '').split(','))))
        if not agents:
            raise ConfigurationError('Set HARNESS_AGENTS to the agents to run, as `module:attribute`.')
        return cls(
            agents=agents,
            address=environment.get('TEMPORAL_ADDRESS', cls.address),
            namespace=environment.get('TEMPORAL_NAMESPACE', cls.namespace),
            task_queue=environment.get('HARNESS_TASK_QUEUE', cls.task_queue),
            build_id=environment.get('HARNESS_BUILD_ID', cls.build_id),
            graceful_shutdown=timedelta(seconds=_number(environment, 'HARNESS_GRACEFUL_SHUTDOWN_SECONDS', 30)),
            maintenance=_maintenance(environment),
            maintenance_interval=timedelta(hours=_number(environment, 'HARNESS_MAINTENANCE_HOURS', 24)),
        )

    def load_agents(self) -> list[AbstractAgent[Any, Any]]:
        """Import the agents.

        Raises:
            ConfigurationError: A name does not lead to an agent.
        """
        return [load_attribute(name, AbstractAgent) for name in self.agents]


def _maintenance(environment: Mapping[str, str]) -> MaintenanceInput | None:
    switch = environment.get('HARNESS_MAINTENANCE', 'off')
    if switch not in ('on', 'off'):
        raise ConfigurationError(f"HARNESS_MAINTENANCE is {switch!r}; it can be 'on' or 'off'.")
    days = _number(environment, 'HARNESS_EXPIRE_AFTER_DAYS', 0)
    if switch == 'off' and days:
        raise ConfigurationError('HARNESS_EXPIRE_AFTER_DAYS needs HARNESS_MAINTENANCE=on.')
    return MaintenanceInput(idle_for=timedelta(days=days) if days else None) if switch == 'on' else None


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    value = environment.get(name)
    try:
        number = default if value is None else float(value)
    except ValueError as error:
        raise ConfigurationError(f'{name} is {value!r}, not a number.') from error
    if not 0 <= number < 1e6 or (value is not None and number == 0):
        raise ConfigurationError(f'{name} is {value!r}; it must be more than 0.')
    return number
