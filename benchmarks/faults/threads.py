"""Drives one thread from its first message to its end, as its host would."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pydantic_ai.tools import DeferredToolResults
from temporalio.client import Client

from benchmarks.faults.oracle import RESUMED
from benchmarks.faults.plan import PlannedRun
from benchmarks.faults.runs import DECIDED, RESUMPTIONS, patiently
from benchmarks.faults.script import message_prefix, prompt
from harness_temporal.errors import ThreadError
from harness_temporal.temporal import HarnessThread, HarnessThreads, HistoryBudget, ThreadOptions, ThreadOutput
from harness_temporal.temporal.threads import Reply


@dataclass
class Message:
    """A message, and what became of it."""

    key: str
    prompt: str
    turns: set[int] = field(default_factory=set[int])
    """The turns that its sends had: one, if a message that is sent again is taken once."""
    ended: Reply | None = None

    @property
    def is_answered(self) -> bool:
        return self.ended is not None and self.ended.status == 'answered'


@dataclass
class DrivenThread:
    planned: PlannedRun
    messages: list[Message] = field(default_factory=list[Message])
    """In the order in which they were accepted. A message whose turn failed is sent again, under another key."""
    ended: ThreadOutput | None = None

    @property
    def workflow_ids(self) -> list[str]:
        return [self.planned.workflow_id]

    @property
    def failures(self) -> list[str]:
        return [
            f'{message.ended.error_type}: {message.ended.error}'
            for message in self.messages
            if message.ended is not None and message.ended.status == 'failed'
        ]

    @property
    def resumptions(self) -> int:
        return len(self.messages) - len(self.planned.messages)

    @property
    def outputs(self) -> list[str]:
        """The answers, in the order of the turns."""
        return [message.ended.output for message in self.messages if message.ended is not None and message.is_answered]

    @property
    def to_be_answered(self) -> list[Message]:
        """The last sends of each message."""
        return list({message.key.partition(RESUMED)[0]: message for message in self.messages}.values())


async def drive_thread(client: Client, task_queue: str, driven: DrivenThread) -> None:
    """Send all messages at once, each twice, then follow them. A thread that does not get to its end has no `ended`."""
    planned = driven.planned
    options = ThreadOptions(history_budget=HistoryBudget(events=planned.history_events))
    threads = HarnessThreads(client, agent=planned.agent, task_queue=task_queue, options=options)
    thread = await patiently(partial(threads.open, planned.thread_id))
    sent = [await _send(thread, driven, number, again=0) for number in range(len(planned.messages))]
    for number, message in enumerate(sent):
        for again in range(1, RESUMPTIONS):
            await _follow(thread, message)
            if message.is_answered:
                break
            message = await _send(thread, driven, number, again=again)
    await patiently(partial(_close, thread))
    driven.ended = await patiently(thread.result)


async def _send(thread: HarnessThread, driven: DrivenThread, number: int, *, again: int) -> Message:
    text = prompt(driven.planned.messages[number], message_prefix(number), again=again)
    message = Message(f'{number}{RESUMED}{again}', text)
    driven.messages.append(message)
    for _ in range(2):
        reply = await patiently(partial(thread.send, message.prompt, key=message.key, wait='accepted'))
        message.turns.add(reply.turn)
    return message


async def _follow(thread: HarnessThread, message: Message) -> None:
    """Wait for the end of a message's turn. Give what it waits for, twice each time."""
    while True:
        reply = await patiently(partial(thread.reply, message.key))
        if reply.status != 'waiting_for_approval':
            break
        results = DeferredToolResults(
            calls={call.tool_call_id: DECIDED for call in reply.pending if call.kind == 'external'},
            approvals={call.tool_call_id: True for call in reply.pending if call.kind == 'approval'},
        )
        for _ in range(2):
            await patiently(partial(thread.resolve, results, run_id=reply.run_id, update_id=f'answers-{reply.run_id}'))
    message.ended = reply


async def _close(thread: HarnessThread) -> None:
    try:
        await thread.close()
    except ThreadError as error:
        # An earlier call closed it, and got no answer.
        if error.code != 'thread_closed':
            raise
