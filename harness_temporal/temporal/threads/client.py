"""Open threads, talk to them and look at them, from outside of Temporal."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolResults
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from harness_temporal.errors import ThreadError
from harness_temporal.state.deferred_documents import results_document
from harness_temporal.state.envelope import HarnessState
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.carried_state import CarriedState
from harness_temporal.temporal.failures import read_back
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
    ThreadOptions,
    ThreadOutput,
    ThreadStatus,
    Wait,
)
from harness_temporal.temporal.visibility import attributes
from harness_temporal.temporal.visibility.summaries import thread_summary

_ReturnT = TypeVar('_ReturnT')

_NOT_READY_DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts while the workflow's task fails, on an overloaded worker for example."""


def thread_workflow_id(thread_id: str) -> str:
    """Return the id of the workflow that keeps a thread."""
    return f'thread-{thread_id}'


class HarnessThreads:
    """The threads of one agent.

    Args:
        client: Connected with `HarnessPlugin`, with the same `payloads` as the workers.
        agent: The agent's name on the workers.
        task_queue: The workers' task queue.
        options: How threads that are opened here behave.
        workflow: The workflow type.
        search_attributes: Threads that are opened here set the attributes by which they are found in the Temporal UI.
            The namespace has to have them (docs/run-in-production.md).
    """

    def __init__(
        self,
        client: Client,
        *,
        agent: str,
        task_queue: str,
        options: ThreadOptions | None = None,
        workflow: str = THREAD_WORKFLOW,
        search_attributes: bool = False,
    ) -> None:
        self._client = client
        self._agent = agent
        self._task_queue = task_queue
        self._options = options or ThreadOptions()
        self._workflow = workflow
        self._search_attributes = search_attributes

    async def open(
        self,
        thread_id: str,
        *,
        deps: Any = None,
        name: str | None = None,
        state: HarnessState | CarriedState | None = None,
    ) -> HarnessThread:
        """Open a thread, or return the one that is open under this id as it is.

        Args:
            thread_id: See `HarnessState.new`. It is the thread's conversation in the store, too.
            deps: The agent's dependencies as JSON, for every run of the thread.
            name: What people call it.
            state: What it goes on from. The state of another thread is forked.

        Raises:
            StateEnvelopeError: It is no thread id, or no state.
            ThreadError: The thread was closed (`thread_closed`).
        """
        input = ThreadInput(
            thread_id=HarnessState.new(thread_id=thread_id).thread_id,
            agent=self._agent,
            deps=deps,
            name=name,
            options=self._options,
            state=_of_thread(thread_id, state) if state is not None else None,
            search_attributes=self._search_attributes,
        )
        try:
            await self._client.start_workflow(
                self._workflow,
                input,
                id=thread_workflow_id(thread_id),
                task_queue=self._task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                static_summary=thread_summary(name) if name is not None else None,
                search_attributes=(attributes.at_opening(self._agent, thread_id) if self._search_attributes else None),
            )
        except WorkflowAlreadyStartedError as error:
            raise _closed(thread_id) from error
        return self.get(thread_id)

    def get(self, thread_id: str) -> HarnessThread:
        """Return a thread that was opened before. Nothing is asked of the server."""
        handle = self._client.get_workflow_handle(thread_workflow_id(thread_id), result_type=ThreadOutput)
        return HarnessThread(thread_id, handle)


@dataclass(frozen=True)
class HarnessThread:
    """One thread.

    Every method that asks the server raises `ThreadError` with a code if the thread refuses, `thread_closed` if it is
    closed, and `RPCError` if there is no such thread.
    """

    thread_id: str
    handle: WorkflowHandle[Any, ThreadOutput]
    """Of the thread's workflow, through all of its runs."""

    async def send(self, prompt: str, *, key: str | None = None, wait: Wait = 'answered') -> Reply:
        """Send a message. Its turn comes after those of the messages that were accepted before it.

        Args:
            prompt: The message.
            key: The same message sent again with the same key is the same turn, and has the same answer. By default
                each call is a message of its own.
            wait: Return when it is `accepted`, or `answered`: when its turn has ended, or waits for approvals.

        Raises:
            ThreadError: `prompt_empty`, `prompt_too_large`, `queue_full`, `key_invalid`, `key_reused`,
                `thread_closed`.
        """
        given = SendInput(prompt=prompt, key=key if key is not None else uuid.uuid4().hex, wait=wait)
        return await self._follow(await self._update('send', given, Reply), wait)

    async def reply(self, key: str, *, wait: Wait = 'answered') -> Reply:
        """Return where the turn of a message is that was sent with `key`.

        Raises:
            ThreadError: There is none, or it is long ago (`key_unknown`).
        """
        return await self._follow(await self._update('send', SendInput(prompt=None, key=key, wait=wait), Reply), wait)

    async def resolve(
        self,
        results: DeferredToolResults,
        *,
        run_id: str | None = None,
        wait: Wait = 'accepted',
        update_id: str | None = None,
    ) -> Reply:
        """Answer some or all of the calls that the turn waits for. It goes on when all are answered.

        Args:
            results: Approvals and external results, by `tool_call_id`.
            run_id: The run that asked (`Reply.run_id`). Give it, if the ids of the agent's calls may repeat: late
                answers to one call are then never taken for answers to another.
            wait: As for `send`.
            update_id: Sent again with the same id, the answers are taken once.

        Raises:
            ThreadError: `not_waiting`, `answers_empty`, `answers_invalid`, `call_unknown`, `call_already_answered`,
                `call_answered_twice`, `call_of_other_kind`, or the code of a `DeferredResumeError`; nothing was taken.
        """
        given = ResolveInput(answers=results_document(results), run_id=run_id, wait=wait)
        reply = await self._update('resolve', given, Reply, update_id)
        return await self._follow(reply, wait)

    async def cancel(self, *, turn: int | None = None, update_id: str | None = None) -> Reply:
        """Cancel the turn that is on, or another one by its number, and return when it has ended.

        Raises:
            ThreadError: There is none (`nothing_to_cancel`).
        """
        reply = await self._update('cancel', CancelInput(turn=turn), Reply, update_id)
        return await self._follow(reply, 'answered')

    async def rename(self, name: str, *, update_id: str | None = None) -> None:
        """Give it another name.

        Raises:
            ThreadError: `name_invalid`.
        """
        await self._update('rename', RenameInput(name=name), type(None), update_id)

    async def close(self) -> None:
        """Have it take no more messages, and end when it has answered those that it took. `result` waits for that."""
        await self._update('close', None, type(None))

    async def result(self) -> ThreadOutput:
        """Wait for the end of a thread that was closed."""
        return await self.handle.result()

    async def status(self) -> ThreadStatus:
        """Return where the thread is."""
        return await self.handle.query('status', result_type=ThreadStatus)

    async def approvals(self) -> list[PendingCall]:
        """Return the calls that the turn waits for."""
        return await self.handle.query('approvals', result_type=list[PendingCall])

    async def steps(self) -> list[StepSummary]:
        """Return what the newest run did, step by step."""
        return await self.handle.query('steps', result_type=list[StepSummary])

    async def state(self) -> CarriedState:
        """Return the last good state: that after the last turn that was answered, or waits for approvals."""
        return await self.handle.query('state', result_type=CarriedState)

    async def history(self, store: StepStore) -> list[ModelMessage]:
        """Return the messages of the last good state; `store` is that of the agent.

        Raises:
            SnapshotNotFoundError: They are no longer in the store.
        """
        return list((await (await self.state()).load(store)).message_history)

    async def _follow(self, reply: Reply, wait: Wait) -> Reply:
        """Ask again while the thread goes on in another workflow run. Each of those does at least one step."""
        while reply.handed_over and wait == 'answered':
            reply = await self._update('send', SendInput(prompt=None, key=reply.key, wait=wait), Reply)
        return reply

    async def _update(
        self, name: str, given: Any, result_type: type[_ReturnT], update_id: str | None = None
    ) -> _ReturnT:
        update_id = update_id if update_id is not None else uuid.uuid4().hex
        delays = iter(_NOT_READY_DELAYS)
        while True:
            try:
                return await self.handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
                    name, args=[given] if given is not None else [], id=update_id, result_type=result_type
                )
            except WorkflowUpdateFailedError as error:
                raise read_back(ThreadError, error.cause) or error from error.cause
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    description = await self.handle.describe()
                    if description.status is not WorkflowExecutionStatus.RUNNING:
                        raise _closed(self.thread_id) from error
                    # It went on in another workflow run just then, and does not know of the update.
                elif error.status is RPCStatusCode.FAILED_PRECONDITION and (delay := next(delays, None)) is not None:
                    await asyncio.sleep(delay)
                else:
                    raise


def _closed(thread_id: str) -> ThreadError:
    return ThreadError('thread_closed', f'Thread {thread_id!r} is closed. Open another one with its state.')


def _of_thread(thread_id: str, state: HarnessState | CarriedState) -> CarriedState:
    carried = CarriedState(document=state) if isinstance(state, HarnessState) else state
    document = carried.without_history()
    if document.thread_id != thread_id:
        document = document.fork(thread_id=thread_id)
    return replace(carried, document=document)
