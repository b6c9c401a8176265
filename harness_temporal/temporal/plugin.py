"""`HarnessPlugin`: everything a client and a worker need, in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import temporalio.client
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPayloadConverter, PydanticAIPlugin
from temporalio.worker import ReplayerConfig, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.errors import ConfigurationError, HarnessError, PluginMissingError
from harness_temporal.observability.observer import Observer
from harness_temporal.step_persistence.naming import SessionNamer
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.durability import HarnessDurability
from harness_temporal.temporal.interceptor import BoundaryInterceptor
from harness_temporal.temporal.maintenance import maintain_activity
from harness_temporal.temporal.naming import name_conversation_activity
from harness_temporal.temporal.native_checks import use_native_checks
from harness_temporal.temporal.observing import ObservingInterceptor
from harness_temporal.temporal.payloads.storage import PayloadStorage, with_payload_storage
from harness_temporal.temporal.payloads.stuck import StuckWorkflows
from harness_temporal.temporal.payloads.unreadable import PayloadGuard
from harness_temporal.temporal.snapshots import load_snapshot_activity, save_snapshot_activity

_PASSED_THROUGH = ('harness_temporal', 'asyncpg', 'sqlite3', '_sqlite3')
"""Modules that are the same inside and outside the workflow sandbox; rebuilding them per workflow takes seconds."""


_SDK_STICKY_TIMEOUT = timedelta(seconds=10)
STICKY_TIMEOUT = timedelta(seconds=2)
"""How long a workflow task waits for the worker that has the workflow in its cache, before any worker may take it. A
run stands still that long when that worker has died; the SDK's own ten seconds would be most of the wait."""


class HarnessPlugin(PydanticAIPlugin):
    """Client and worker plugin. Give it to `Client.connect`; a worker takes its client's plugins.

    It brings Pydantic AI's data converter, the activities of the agents, the boundaries around them, the sandbox
    pass-through of this package and of the modules that define the agents, and the failure types that end a workflow
    instead of leaving its task retrying for ever.

    Args:
        agents: The agents whose workflows run on the worker. Those that a workflow class lists in
            `__pydantic_ai_agents__` are found by themselves.
        payloads: Where large payloads are kept, and how payloads are encrypted. Everyone who touches the workflows
            needs the same. Without it a value that Temporal would not take ends its call by name.
        observer: Is told what happens on the worker, `HarnessMetrics` for example.
        naming: Names conversations for workflows that ask for it (`name_conversation`, `name_messages`).
        conversations: Has the conversations that the worker's maintenance deletes when they are old.
    """

    def __init__(
        self,
        *,
        agents: Sequence[AbstractAgent[Any, Any]] = (),
        payloads: PayloadStorage | None = None,
        observer: Observer | None = None,
        naming: SessionNamer | None = None,
        conversations: ConversationStore | None = None,
    ) -> None:
        super().__init__()
        self._agents = tuple(agents)
        self._payloads = payloads
        self._naming = naming
        self._conversations = conversations
        self._registry = AgentRegistry()
        self._boundaries = BoundaryInterceptor(self._registry)
        # The guard is the outer one: the others look into what it lets through.
        self._interceptors = (PayloadGuard(), ObservingInterceptor(observer), self._boundaries)
        if payloads is not None and observer is not None:
            payloads.codec.observe(observer)

    def name(self) -> str:
        """Name the plugin in Temporal's logs."""
        return 'harness_temporal.HarnessPlugin'

    def configure_client(self, config: temporalio.client.ClientConfig) -> temporalio.client.ClientConfig:
        """Add the data converter and the client's part of the boundaries."""
        config = super().configure_client(config)
        config['data_converter'] = with_payload_storage(config['data_converter'], self._payloads)
        config['interceptors'] = [*(config.get('interceptors') or []), *self._interceptors]
        return config

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add the agents' activities, the boundaries, the sandbox pass-through and the failure types.

        Raises:
            PluginMissingError: The worker's client was connected without the plugin.
            ConfigurationError: An agent has no `HarnessDurability`, or the media of its runs are in the media store of
                the payloads.
        """
        given = cast(dict[str, Any], config)
        client = cast(dict[str, Any], given['client'].config(active_config=True))
        if not issubclass(client['data_converter'].payload_converter_class, PydanticAIPayloadConverter):
            raise PluginMissingError(
                'The worker has `HarnessPlugin`, but its client was connected without it, so messages would not be '
                'encoded as agents need. Pass `plugins=[HarnessPlugin(agents=[...])]` to `Client.connect` instead; the '
                "worker takes its client's plugins."
            )
        agents = self._all_agents(given.get('workflows') or ())
        config = super().configure_worker(config)
        for agent in self._agents:
            if HarnessDurability.from_agent(agent) is None:
                raise ConfigurationError(
                    f'Agent {agent.name!r} in `HarnessPlugin(agents=...)` has no `HarnessDurability`; add it to the '
                    "agent's `capabilities`."
                )
            config = AgentPlugin(agent).configure_worker(config)
        ours = (
            load_snapshot_activity(self._registry),
            save_snapshot_activity(self._registry),
            maintain_activity(self._registry, self._payloads, self._conversations),
            name_conversation_activity(self._naming),
        )
        config['activities'] = [*(cast(dict[str, Any], config).get('activities') or ()), *ours]
        watched = any(isinstance(item, BoundaryInterceptor) for item in client['interceptors'])
        configured = self._configured(cast(dict[str, Any], config), agents, add_interceptor=not watched)
        if configured['sticky_queue_schedule_to_start_timeout'] == _SDK_STICKY_TIMEOUT:
            configured['sticky_queue_schedule_to_start_timeout'] = STICKY_TIMEOUT
        if self._payloads is not None:
            self._payloads.check_apart(self._registry.stores())
            self._payloads.codec.watch(StuckWorkflows(given['client']).look_at)
        return cast(WorkerConfig, configured)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Give a `Replayer` what the worker has."""
        agents = self._all_agents(cast(dict[str, Any], config).get('workflows') or ())
        given = cast(dict[str, Any], super().configure_replayer(config))
        given['data_converter'] = with_payload_storage(given['data_converter'], self._payloads)
        return cast(ReplayerConfig, self._configured(given, agents, add_interceptor=True))

    def _configured(
        self, config: dict[str, Any], agents: Sequence[AbstractAgent[Any, Any]], *, add_interceptor: bool
    ) -> dict[str, Any]:
        if add_interceptor:
            config['interceptors'] = [*(config.get('interceptors') or ()), *self._interceptors]
        failures = config.get('workflow_failure_exception_types') or ()
        config['workflow_failure_exception_types'] = [*failures, HarnessError]
        config['workflow_runner'] = self._runner(config['workflow_runner'], agents)
        return config

    def _all_agents(self, workflows: Sequence[type]) -> list[AbstractAgent[Any, Any]]:
        listed = [
            cast(AbstractAgent[Any, Any], agent)
            for workflow_class in workflows
            for agent in getattr(workflow_class, '__pydantic_ai_agents__', ())
        ]
        return list({id(agent): agent for agent in (*self._agents, *listed)}.values())

    def _runner(self, runner: WorkflowRunner, agents: Sequence[AbstractAgent[Any, Any]]) -> WorkflowRunner:
        modules: list[str] = []
        for agent in agents:
            durability = self._registry.add(agent)
            if durability is not None and durability.defining_module is not None:
                modules.append(durability.defining_module)
        if not isinstance(runner, SandboxedWorkflowRunner):
            return runner
        use_native_checks()
        passed = runner.restrictions.with_passthrough_modules(*_PASSED_THROUGH, *modules)
        return replace(runner, restrictions=passed)
