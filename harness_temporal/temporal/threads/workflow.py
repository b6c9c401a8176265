"""One workflow per thread."""

from __future__ import annotations

from datetime import timedelta

from pydantic_ai.durable_exec.temporal import AgentEventStream
from temporalio import workflow

from harness_temporal.temporal.carried_state import CarriedState
from harness_temporal.temporal.threads.desk import ThreadDesk
from harness_temporal.temporal.threads.thread import Thread
from harness_temporal.temporal.threads.values import (
    THREAD_WORKFLOW,
    CancelInput,
    PendingCall,
    RenameInput,
    Reply,
    ResolveInput,
    SendInput,
    StepSummary,
    ThreadInput,
    ThreadOutput,
    ThreadStatus,
)

_DRAIN_TIMEOUT = timedelta(seconds=5)
"""How long a closed thread waits for somebody who reads its events to have read the last one."""


@workflow.defn(name=THREAD_WORKFLOW)
class ThreadWorkflow:
    """Keeps one thread of an agent: takes messages, and answers them in the order in which it took them."""

    @workflow.init
    def __init__(self, input: ThreadInput) -> None:
        prior = input.going_on.stream if input.going_on is not None else None
        events = AgentEventStream(prior_state=prior, drain_timeout=_DRAIN_TIMEOUT)
        self._thread = Thread(input, events)
        self._desk = ThreadDesk(self._thread)

    @workflow.run
    async def run(self, input: ThreadInput) -> ThreadOutput:
        """Keep the thread until it is closed. See `ThreadInput` and `ThreadOutput`."""
        return await self._thread.run()

    @workflow.update
    async def send(self, given: SendInput) -> Reply:
        """Take a message."""
        return await self._desk.send(given)

    @send.validator
    def _check_send(self, given: SendInput) -> None:
        self._desk.check_send(given)

    @workflow.update
    async def resolve(self, given: ResolveInput) -> Reply:
        """Take answers to calls that the turn waits for."""
        return await self._desk.resolve(given)

    @resolve.validator
    def _check_resolve(self, given: ResolveInput) -> None:
        self._desk.check_resolve(given)

    @workflow.update
    async def cancel(self, given: CancelInput) -> Reply:
        """Cancel a turn."""
        return await self._desk.cancel(given)

    @cancel.validator
    def _check_cancel(self, given: CancelInput) -> None:
        self._desk.check_cancel(given)

    @workflow.update
    async def rename(self, given: RenameInput) -> None:
        """Give the thread another name."""
        await self._desk.rename(given)

    @rename.validator
    def _check_rename(self, given: RenameInput) -> None:
        self._desk.check_rename(given)

    @workflow.update
    async def close(self) -> None:
        """Take no more messages, and end after those that were taken."""
        await self._desk.close()

    @workflow.query
    def status(self) -> ThreadStatus:
        """Where the thread is."""
        return self._desk.status()

    @workflow.query
    def approvals(self) -> list[PendingCall]:
        """The calls that the turn waits for."""
        return self._desk.approvals()

    @workflow.query
    def steps(self) -> list[StepSummary]:
        """What the newest run did, step by step."""
        return self._thread.steps()

    @workflow.query
    def state(self) -> CarriedState:
        """The last good state."""
        return self._thread.basis.state
