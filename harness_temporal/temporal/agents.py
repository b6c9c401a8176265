"""The agents that a worker was given, by the name their activities carry."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities.abstract import leaf_capabilities

from harness_temporal.errors import ConfigurationError
from harness_temporal.step_persistence.capability import StepPersistence
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.durability import HarnessDurability
from harness_temporal.temporal.run_context import HarnessRunContext


class AgentRegistry:
    """Finds an agent and its capabilities."""

    def __init__(self) -> None:
        self._agents: dict[str, AbstractAgent[Any, Any]] = {}
        self._durabilities: dict[str, HarnessDurability[Any]] = {}
        self._deps: dict[str, TypeAdapter[Any]] = {}

    def add(self, agent: AbstractAgent[Any, Any]) -> HarnessDurability[Any] | None:
        """Add an agent. Returns its durability, or `None`, having added nothing, if that is not this package's.

        Raises:
            ConfigurationError: Another agent has the same name: their activities would be mixed up.
        """
        durability = HarnessDurability.from_agent(agent)
        if durability is None:
            return None
        if self._agents.setdefault(durability.name, agent) is not agent:
            raise ConfigurationError(
                f'Two agents of this worker are named {durability.name!r}; activities are told apart by the name. '
                'Give each `Agent(name=...)` its own.'
            )
        self._durabilities[durability.name] = durability
        # Not in workflow code: the sandbox cannot see the module of the type, and schemas take their time.
        with suppress(PydanticUserError):
            self._deps.setdefault(durability.name, TypeAdapter(agent.deps_type))
        return durability

    def agent(self, name: str) -> AbstractAgent[Any, Any]:
        """Return the agent of that name.

        Raises:
            ConfigurationError: There is none.
        """
        if name not in self._agents:
            known = ', '.join(map(repr, self._agents)) or 'none'
            raise ConfigurationError(
                f'This worker has no agent named {name!r} (it has: {known}). Pass it in `HarnessPlugin(agents=[...])`.'
            )
        return self._agents[name]

    def deps(self, name: str, deps: Any) -> Any:
        """Make an agent's dependencies of their JSON form.

        Raises:
            ConfigurationError: They do not fit the agent's `deps_type`, or it is no type that JSON can be read into.
        """
        if deps is None:
            return None
        if name not in self._deps:
            raise ConfigurationError(f'The `deps_type` of agent {name!r} cannot be read from JSON.')
        try:
            return self._deps[name].validate_python(deps)
        except ValidationError as error:
            raise ConfigurationError(f'The dependencies given to agent {name!r} do not fit: {error}') from error

    def durability(self, name: str) -> HarnessDurability[Any]:
        """Return the durability of the agent of that name.

        Raises:
            ConfigurationError: There is no such agent.
        """
        self.agent(name)
        return self._durabilities[name]

    def restores_requests(self, activity_type: str) -> bool:
        """Whether a worker that runs this activity puts its model request together, or says that it cannot."""
        names = self._names_in(activity_type)
        if not names:
            return False
        given = self.durability(names[-1]).run_context_type
        return issubclass(get_origin(given) or given, HarnessRunContext)

    def persistence(self, name: str, capability_id: str | None = None) -> StepPersistence[Any]:
        """Return the agent's `StepPersistence`: the one with that id, or the first.

        Raises:
            ConfigurationError: There is no such agent or capability.
        """
        for capability in leaf_capabilities(self.agent(name).root_capability):
            if isinstance(capability, StepPersistence) and capability_id in (None, capability.id):
                return capability
        wanted = f'`StepPersistence(id={capability_id!r})`' if capability_id else '`StepPersistence`'
        raise ConfigurationError(f'Agent {name!r} of this worker has no {wanted} among its capabilities.')

    def stores(self) -> list[StepStore]:
        """Return the stores of all agents, each once."""
        stores = [
            capability.store
            for agent in self._agents.values()
            for capability in leaf_capabilities(agent.root_capability)
            if isinstance(capability, StepPersistence)
        ]
        return list({id(store): store for store in stores}.values())

    def name_in(self, activity_type: str) -> str:
        """Return the name of the agent that an activity belongs to.

        Raises:
            ConfigurationError: It belongs to no agent of this worker.
        """
        names = self._names_in(activity_type)
        if not names:
            raise ConfigurationError(
                f'Activity {activity_type!r} belongs to no agent that this worker was given. '
                'Pass the agent in `HarnessPlugin(agents=[...])`.'
            )
        return names[-1]

    def _names_in(self, activity_type: str) -> list[str]:
        # The longest last, since one name may be the beginning of another.
        return sorted((name for name in self._agents if activity_type.startswith(f'agent__{name}__')), key=len)
