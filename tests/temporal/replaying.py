"""Replays in processes that know nothing of the runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.forks import FORKS

Open = Callable[[], AbstractAsyncContextManager[Replayer]]


async def replay_elsewhere(histories: Sequence[WorkflowHistory], open_replayer: Open) -> None:
    """Replay histories, one after another, in a fresh process, which opens its replayer itself."""
    given = [(history.workflow_id, history.to_json()) for history in histories]
    receiver, sender = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_replay, args=(given, open_replayer, sender))
    process.start()
    sender.close()
    try:
        failure = await asyncio.to_thread(receiver.recv)
    finally:
        process.join()
    assert failure is None, failure


def _replay(histories: Sequence[tuple[str, str]], open_replayer: Open, sender: Connection) -> None:
    async def run() -> str | None:
        async with open_replayer() as replayer:
            for workflow_id, history in histories:
                result = await replayer.replay_workflow(
                    WorkflowHistory.from_json(workflow_id, history), raise_on_replay_failure=False
                )
                if result.replay_failure is not None:
                    return repr(result.replay_failure)
        return None

    sender.send(asyncio.run(run()))
