"""Drives one run from its start to its end, as its host would: answers what it asks, resumes what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from benchmarks.faults.oracle import RESUMED
from benchmarks.faults.plan import PlannedRun
from benchmarks.faults.script import prompt
from harness_temporal import AgentRunInput, AgentRunOutput, DeferredToolResume
from harness_temporal.identity import resolve_run_id
from harness_temporal.state.deferred_documents import resume_document
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.carried_state import SnapshotReference
from harness_temporal.temporal.client import AGENT_RUN_WORKFLOW

T = TypeVar('T')
Status = Literal['completed', 'suspended', 'cancelled', 'failed', 'lost']
DECIDED = 'decided by a person'
RESUMPTIONS = 12
"""How often a run is resumed, at most."""
_TASK_TIMEOUT = timedelta(seconds=5)
"""How long a workflow task of a worker that died keeps the run waiting."""
_REQUESTS: TypeAdapter[DeferredToolRequests] = TypeAdapter(DeferredToolRequests)


@dataclass
class Leg:
    """One workflow of a run: the first, or one that resumed it."""

    workflow_id: str
    run_id: str = ''
    """The id that it is persisted under."""
    ended: AgentRunOutput | None = None
    failure: str | None = None

    @property
    def status(self) -> Status:
        return self.ended.status if self.ended is not None else 'failed' if self.failure is not None else 'lost'


@dataclass
class Driven:
    planned: PlannedRun
    legs: list[Leg] = field(default_factory=list[Leg])

    @property
    def workflow_ids(self) -> list[str]:
        return [leg.workflow_id for leg in self.legs]

    @property
    def failures(self) -> list[str]:
        return [leg.failure for leg in self.legs if leg.failure is not None]

    @property
    def resumptions(self) -> int:
        return len(self.legs) - 1


async def drive(client: Client, task_queue: str, driven: Driven) -> None:
    """Run to the end. A run that does not get there leaves a last leg that is neither ended nor failed."""
    planned = driven.planned
    input = AgentRunInput(
        agent=planned.agent,
        prompt=prompt(planned.steps),
        history_budget=HistoryBudget(events=planned.history_events),
    )
    for number in range(RESUMPTIONS):
        leg = Leg(f'{planned.workflow_id}{RESUMED}{number}' if number else planned.workflow_id)
        driven.legs.append(leg)
        await _run_leg(client, task_queue, planned.agent, leg, input)
        if leg.status == 'completed':
            break
        input = AgentRunInput(
            agent=planned.agent,
            continue_from=SnapshotReference(run_id=leg.run_id, include_interrupted=True),
            answers=_answers(leg.ended.output) if leg.ended is not None else None,
            history_budget=HistoryBudget(events=planned.history_events),
        )


async def _run_leg(client: Client, task_queue: str, agent: str, leg: Leg, input: AgentRunInput) -> None:
    handle: WorkflowHandle[Any, AgentRunOutput] = client.get_workflow_handle(
        leg.workflow_id, result_type=AgentRunOutput
    )

    async def start() -> None:
        # It is started already where an earlier call got no answer.
        with suppress(WorkflowAlreadyStartedError):
            await client.start_workflow(
                AGENT_RUN_WORKFLOW, input, id=leg.workflow_id, task_queue=task_queue, task_timeout=_TASK_TIMEOUT
            )

    async def first_run() -> str:
        return (await handle.describe()).raw_description.workflow_execution_info.first_run_id

    await patiently(start)
    leg.run_id = persisted_id(agent, await patiently(first_run))
    try:
        leg.ended = await patiently(handle.result)
    except WorkflowFailureError as error:
        cause: BaseException = error.cause
        # Around what was raised are the failures of the activity and of the workflow.
        while isinstance(cause, ActivityError) and cause.cause is not None:
            cause = cause.cause
        leg.failure = f'{getattr(cause, "type", None) or type(cause).__name__}: {cause}'


def persisted_id(agent: str, first_run_id: str) -> str:
    """Return the id of the agent run of a workflow, whose first workflow run has this id."""
    return resolve_run_id(explicit=None, agent_name=agent, context_run_id=f'{first_run_id}:0')


def _answers(output: Any) -> Any:
    """Approve what needs approval; tell of an unknown outcome what a person found out."""
    requests = _REQUESTS.validate_python(output)
    results = DeferredToolResults(
        calls={call.tool_call_id: DECIDED for call in requests.calls},
        approvals={call.tool_call_id: True for call in requests.approvals},
    )
    return resume_document(DeferredToolResume(requests, results))


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Ask the server, also while it is being restarted. The campaign's own time limit ends the wait."""
    while True:
        try:
            return await call()
        except RPCError:
            await asyncio.sleep(0.3)
