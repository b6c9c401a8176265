"""Puts the boundaries around a worker's activities, and the parent run's id into what a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import temporalio.client
import temporalio.worker
from temporalio import activity, workflow

from harness_temporal.context_variables import having
from harness_temporal.step_persistence import outcomes
from harness_temporal.step_persistence.context import boundaries_ride, current_run_id
from harness_temporal.temporal.activity_names import MODEL_REQUESTS, TOOL_CALL
from harness_temporal.temporal.agent_run import worker_agents
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.boundaries import Execute, ModelAttempt, ToolAttempt
from harness_temporal.temporal.headers import parent_run, with_expiry, with_parent_run
from harness_temporal.temporal.received_requests import ReceivedRequests
from harness_temporal.temporal.run_context import FRAMES_KEY
from harness_temporal.temporal.sent_requests import SentRequests, sent_requests
from harness_temporal.temporal.state_arrival import is_tool_call, telling_state_errors, with_state
from harness_temporal.temporal.visibility.steps import StepTable, step_table


class BoundaryInterceptor(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Knows the agents of a worker."""

    def __init__(self, agents: AgentRegistry) -> None:
        self.agents = agents
        self._requests = ReceivedRequests()

    def intercept_client(self, next: temporalio.client.OutboundInterceptor) -> temporalio.client.OutboundInterceptor:
        """Put the parent run's id into workflows that a tool starts through a client."""
        return _ClientOutbound(next)

    def intercept_activity(
        self, next: temporalio.worker.ActivityInboundInterceptor
    ) -> temporalio.worker.ActivityInboundInterceptor:
        """Put the boundaries around activities."""
        return _ActivityInbound(next, self.agents, self._requests)

    def workflow_interceptor_class(
        self, input: temporalio.worker.WorkflowInterceptorClassInput
    ) -> type[temporalio.worker.WorkflowInboundInterceptor]:
        """Carry the parent run's id into child workflows and activities, and the worker's agents into workflows."""
        # Tools' results are read in workflow code, which is not to be slow the first time.
        outcomes.prepare()

        class _WorkerWorkflowInbound(_WorkflowInbound):
            agents = self.agents

        return _WorkerWorkflowInbound


class _ActivityInbound(temporalio.worker.ActivityInboundInterceptor):
    def __init__(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,
        agents: AgentRegistry,
        requests: ReceivedRequests,
    ) -> None:
        super().__init__(next)
        self._agents = agents
        self._requests = requests

    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        parent = parent_run(input.headers, activity.payload_converter())
        with having(boundaries_ride, True), having(current_run_id, parent):
            return await telling_state_errors(partial(self._within_boundaries, input))

    async def _within_boundaries(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        async def execute() -> Any:
            return await self.next.execute_activity(input)

        activity_type = activity.info().activity_type
        around: Execute = execute
        if is_tool_call(activity_type, input.args):
            around = partial(with_state, input.args[0], execute)
        if activity_type.endswith(MODEL_REQUESTS):
            await self._requests.restore(input.args)
        # Several `StepPersistence` nest: the first of the agent's list is the outermost.
        for frame in reversed(_frames(input.args)):
            params: Any = input.args[0]
            if 'call' in frame and activity_type.endswith(TOOL_CALL):
                around = self._tool_attempt(activity_type, frame, params, around)
            elif 'request' in frame and activity_type.endswith(MODEL_REQUESTS):
                around = self._model_attempt(activity_type, frame, params, around)
        return await around()

    def _tool_attempt(self, activity_type: str, frame: Mapping[str, Any], params: Any, inner: Execute) -> Execute:
        agent = self._agents.name_in(activity_type)
        durability = self._agents.durability(agent)
        metadata: Mapping[str, Any] = (params.tool_def.metadata if params.tool_def is not None else None) or {}
        config = metadata.get('temporal')
        given = (
            durability.has_retry_policy
            or any(f'__{toolset_id}__' in activity_type for toolset_id in durability.toolsets_with_retry_policy)
            or (isinstance(config, Mapping) and 'retry_policy' in config)
        )
        persistence = self._agents.persistence(agent, frame['id'])
        attempt = ToolAttempt.of(persistence, frame, params.tool_args, retry_policy_given=given)
        return lambda: attempt.execute(inner)

    def _model_attempt(self, activity_type: str, frame: Mapping[str, Any], params: Any, inner: Execute) -> Execute:
        agent = self._agents.name_in(activity_type)
        given = self._agents.durability(agent).has_retry_policy
        persistence = self._agents.persistence(agent, frame['id'])
        attempt = ModelAttempt.of(persistence, frame, retry_policy_given=given)
        return lambda: attempt.execute(params.messages, inner)


class _WorkflowInbound(temporalio.worker.WorkflowInboundInterceptor):
    agents: AgentRegistry

    def init(self, outbound: temporalio.worker.WorkflowOutboundInterceptor) -> None:
        self._steps = StepTable()
        self._requests = SentRequests()
        super().init(_WorkflowOutbound(outbound, self.agents, self._steps, self._requests))

    async def execute_workflow(self, input: temporalio.worker.ExecuteWorkflowInput) -> Any:
        execute: Execute = partial(super().execute_workflow, input)
        if is_tool_call(workflow.info().workflow_type, input.args):
            execute = partial(telling_state_errors, partial(with_state, input.args[0], execute))
        with (
            having(current_run_id, parent_run(input.headers, workflow.payload_converter())),
            having(worker_agents, self.agents),
            having(step_table, self._steps),
            having(sent_requests, self._requests),
        ):
            return await execute()


class _WorkflowOutbound(temporalio.worker.WorkflowOutboundInterceptor):
    def __init__(
        self,
        next: temporalio.worker.WorkflowOutboundInterceptor,
        agents: AgentRegistry,
        steps: StepTable,
        requests: SentRequests,
    ) -> None:
        super().__init__(next)
        self._agents = agents
        self._steps = steps
        self._requests = requests

    def start_activity(self, input: temporalio.worker.StartActivityInput) -> workflow.ActivityHandle[Any]:
        row = self._steps.add(input, next((frame['run']['run_id'] for frame in _frames(input.args)), None))
        handle = self._start_activity(input)
        if row is not None:
            handle.add_done_callback(partial(self._steps.end, row))
        return handle

    def _start_activity(self, input: temporalio.worker.StartActivityInput) -> workflow.ActivityHandle[Any]:
        if input.activity.endswith(MODEL_REQUESTS) and self._agents.restores_requests(input.activity):
            return self._requests.send(input, super().start_activity)
        # An agent's own activities carry the run in their run context.
        if not input.activity.startswith('agent__'):
            input.headers = with_parent_run(input.headers, workflow.payload_converter())
        return super().start_activity(input)

    def start_local_activity(self, input: temporalio.worker.StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = with_parent_run(input.headers, workflow.payload_converter())
        return super().start_local_activity(input)

    async def start_child_workflow(
        self, input: temporalio.worker.StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        input.headers = with_parent_run(input.headers, workflow.payload_converter())
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: temporalio.worker.ContinueAsNewInput) -> NoReturn:
        input.headers = with_expiry(input.headers)
        super().continue_as_new(input)


class _ClientOutbound(temporalio.client.OutboundInterceptor):
    async def start_workflow(
        self, input: temporalio.client.StartWorkflowInput
    ) -> temporalio.client.WorkflowHandle[Any, Any]:
        if current_run_id.get() is not None:
            input.headers = with_parent_run(input.headers, activity.payload_converter())
        return await super().start_workflow(input)


def _frames(args: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the frames in an agent activity's run context; none for any other activity."""
    context = getattr(args[0], 'serialized_run_context', None) if args else None
    return context.get(FRAMES_KEY, []) if isinstance(context, dict) else []  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
