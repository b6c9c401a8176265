"""Start, resume and fork the runs of one agent from outside of Temporal."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Unpack

from pydantic_ai.usage import UsageLimits
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from typing_extensions import TypedDict

from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.deferred_documents import resume_document
from harness_temporal.state.envelope import HarnessState
from harness_temporal.step_persistence.effects import ToolRecovery
from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.visibility import attributes, run_details
from harness_temporal.temporal.visibility.summaries import run_summary

AGENT_RUN_WORKFLOW = 'AgentRun'
"""Name of the workflow type that runs one agent once. It is in histories for ever."""

AgentRunHandle = WorkflowHandle[Any, AgentRunOutput]


class RunOptions(TypedDict, total=False):
    """What a run may be given, however it starts. See `AgentRunInput`."""

    deps: Any
    usage_limits: UsageLimits | None
    conversation_id: str | None


class HarnessClient:
    """Runs one agent in workflows of their own, each once.

    Args:
        client: Connected with `HarnessPlugin`, with the same `payloads` as the workers.
        agent: The agent's name on the workers.
        task_queue: The workers' task queue.
        workflow: The workflow type; one whose run method is `run_agent`.
        search_attributes: Set the attributes by which runs are found in the Temporal UI. The namespace has to have
            them (docs/run-in-production.md).
    """

    def __init__(
        self,
        client: Client,
        *,
        agent: str,
        task_queue: str,
        workflow: str = AGENT_RUN_WORKFLOW,
        search_attributes: bool = False,
    ) -> None:
        self._client = client
        self._agent = agent
        self._task_queue = task_queue
        self._workflow = workflow
        self._search_attributes = search_attributes

    async def start(
        self,
        prompt: str | None,
        *,
        state: HarnessState | CarriedState | None = None,
        answers: DeferredToolResume | None = None,
        tool_recovery: ToolRecovery = 'declared',
        workflow_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AgentRunHandle:
        """Start a run: of a new thread, or on the thread whose `state` an earlier run gave.

        Raises:
            WorkflowAlreadyStartedError: A workflow with that id is running.
        """
        carried = CarriedState(document=state) if isinstance(state, HarnessState) else state
        input = AgentRunInput(
            agent=self._agent,
            prompt=prompt,
            state=carried,
            answers=resume_document(answers) if answers is not None else None,
            tool_recovery=tool_recovery,
            **options,
        )
        return await self._start(input, workflow_id)

    async def resume(
        self,
        run_id: str,
        *,
        prompt: str | None = None,
        state: HarnessState | None = None,
        answers: DeferredToolResume | None = None,
        tool_recovery: ToolRecovery = 'declared',
        workflow_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AgentRunHandle:
        """Go on from where a run stood when it failed, was terminated or suspended itself, in a new workflow.

        The store says where that was, and its ledger what became of the last tool calls. A call whose outcome is
        recorded is not made again; `tool_recovery` decides about the others.

        A run is resumed once: by default the new workflow's id is made of the run's, so that a second call finds the
        first one. After the resumed run failed, the same run can be resumed again.

        Args:
            run_id: The id that the run is persisted under.
            prompt: New input, after the results of the open calls.
            state: The thread's capability state, if the host has it: the store keeps messages only.
            answers: Answers to the calls that a suspended run waits for.
            tool_recovery: Whether open calls without a recorded outcome run again: `never`, those of tools declared
                with `recovery_retryable`, or `always`.
            workflow_id: The new workflow's id.
            options: Further fields of `AgentRunInput`.

        Raises:
            WorkflowAlreadyStartedError: The run is being resumed, or was resumed and that has completed.
        """
        input = AgentRunInput(
            agent=self._agent,
            prompt=prompt,
            continue_from=SnapshotReference(run_id=run_id, include_interrupted=True),
            state=CarriedState(document=state) if state is not None else None,
            answers=resume_document(answers) if answers is not None else None,
            tool_recovery=tool_recovery,
            **options,
        )
        return await self._start(input, workflow_id or f'resume-{run_id}')

    async def fork(
        self,
        run_id: str,
        *,
        prompt: str | None = None,
        include_interrupted: bool = False,
        tool_recovery: ToolRecovery = 'declared',
        workflow_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AgentRunHandle:
        """Branch off a run's newest complete snapshot (or off where it stood) into a thread of its own.

        Raises:
            WorkflowAlreadyStartedError: A workflow with that id is running.
        """
        input = AgentRunInput(
            agent=self._agent,
            prompt=prompt,
            fork_from=SnapshotReference(run_id=run_id, include_interrupted=include_interrupted),
            tool_recovery=tool_recovery,
            **options,
        )
        return await self._start(input, workflow_id)

    async def _start(self, input: AgentRunInput, workflow_id: str | None) -> AgentRunHandle:
        return await self._client.start_workflow(
            self._workflow,
            replace(input, search_attributes=self._search_attributes),
            static_summary=run_summary(self._agent, input.prompt),
            static_details=run_details.begun(
                self._agent,
                input.prompt,
                conversation_id=input.conversation_id,
                continued=input.continue_from.run_id if input.continue_from is not None else None,
                forked=input.fork_from.run_id if input.fork_from is not None else None,
            ),
            search_attributes=attributes.at_start(self._agent) if self._search_attributes else None,
            id=workflow_id or f'{self._agent}-{uuid.uuid4().hex}',
            task_queue=self._task_queue,
            result_type=AgentRunOutput,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        )
