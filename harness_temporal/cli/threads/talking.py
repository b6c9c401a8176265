"""Open threads, and say something to them."""

from __future__ import annotations

import uuid

from harness_temporal.cli.connecting import Place, connected
from harness_temporal.cli.inputs import given_deps, given_state
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting
from harness_temporal.cli.threads.views import reply_output
from harness_temporal.hosting.namespace import has_attributes
from harness_temporal.temporal.threads import HarnessThread, HarnessThreads


async def existing_thread(place: Place, thread_id: str) -> HarnessThread:
    """Return a thread that was opened before. Nothing is asked of it yet."""
    target = await connected(place)
    # What the agent is, and where its workers are, its workflow knows.
    return HarnessThreads(target.client, agent='', task_queue=target.task_queue).get(thread_id)


async def open_thread(
    place: Place, agent: str, thread_id: str | None, *, name: str | None, deps: str | None, state: str | None
) -> Output:
    """Open a thread."""
    given = given_state(state)
    wanted = thread_id if thread_id is not None else f'thread_{uuid.uuid4().hex}'
    target = await connected(place)
    threads = HarnessThreads(
        target.client,
        agent=agent,
        task_queue=target.task_queue,
        search_attributes=await has_attributes(target.client),
    )
    thread = await threads.open(wanted, name=name, deps=given_deps(deps), state=given)
    return Output({'thread_id': thread.thread_id, 'workflow_id': thread.handle.id}, thread.thread_id)


async def send_message(place: Place, thread_id: str, prompt: str, *, key: str | None, wait: bool) -> Output:
    """Send a message."""
    thread = await existing_thread(place, thread_id)
    with waiting(f'thread {thread_id}'):
        reply = await thread.send(prompt, key=key, wait='answered' if wait else 'accepted')
    return reply_output(thread_id, reply)


async def cancel_turn(place: Place, thread_id: str, turn: int | None) -> Output:
    """Cancel a turn."""
    thread = await existing_thread(place, thread_id)
    return reply_output(thread_id, await thread.cancel(turn=turn))


async def rename_thread(place: Place, thread_id: str, name: str) -> Output:
    """Give a thread another name."""
    await (await existing_thread(place, thread_id)).rename(name)
    return Output({'thread_id': thread_id, 'name': name}, f'Thread {thread_id} is {name} now.')


async def close_thread(place: Place, thread_id: str) -> Output:
    """Have a thread end."""
    await (await existing_thread(place, thread_id)).close()
    return Output({'thread_id': thread_id}, f'Thread {thread_id} takes no more messages.')
