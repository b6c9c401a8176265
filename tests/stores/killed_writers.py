"""Writers that are killed with SIGKILL: what they write, and who kills them.

A writer has one task for each of its runs, and tells of each acknowledged batch through a pipe. It is forked from a
process with a single thread that has everything imported, so that hundreds of them can be killed within seconds.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from multiprocessing.connection import Connection

from pydantic_ai.messages import ModelMessage

from harness_temporal.records import Record
from harness_temporal.stores import StepStore
from harness_temporal.testing.samples import a_response, a_run, a_start, an_end, an_event, an_extension, asks, says
from tests.forks import FORKS, import_before_forks

OpenStore = Callable[[], StepStore]
"""What a writer opens its store with. It is sent to another process, and opens nothing before the store's first use."""

_READY = b'!'
import_before_forks('tests.stores.killed_writers')


# --- what is written ---


def child_of(run_id: str) -> str:
    """Return the run that a writer's run shares some of its batches with."""
    return f'{run_id}.child'


def a_batch(run_id: str, index: int, *, topic: str, size: int) -> list[Record]:
    """Make the batch with this number: by turns the start of a step, with a longer history, and its end.

    Every batch has one event. Its records have keys, as those of the capability have, so it may be written again.
    """
    step, key = index // 2, f'{index}'
    event = an_event(run_id, step_index=index, idempotency_key=key)
    if index % 2:
        body = f'{index} {_filler(topic, size)}'.encode()
        end = an_end(run_id, call_key=f'{step}', value=body)
        return [a_response(run_id, key='latest', body=body), end, event]
    history = _messages(2 * step + 2, topic, size)

    def snapshot(of: str) -> Record:
        return an_extension(history, base_length=2 * step, run_id=of, step_index=index, idempotency_key=key)

    records: list[Record] = [a_start(run_id, call_key=f'{step}'), event, snapshot(run_id)]
    if index == 0:
        records.append(a_run(run_id, conversation_id=run_id))
    if step % 2 == 0:
        child = child_of(run_id)
        records += [
            a_run(child, parent_run_id=run_id, conversation_id=run_id),
            an_event(child, step_index=index, idempotency_key=key),
            snapshot(child),
        ]
    return records


def _messages(length: int, topic: str, size: int) -> list[ModelMessage]:
    filler = _filler(topic, size)
    return [(says if index % 2 else asks)(f'{topic} {index} {filler}') for index in range(length)]


@lru_cache(maxsize=2)
def _filler(topic: str, size: int) -> str:
    """Make text of this length that no store compresses to nothing."""
    return random.Random(topic).randbytes(size // 2).hex()


# --- the writer, and who kills it ---


@dataclass(frozen=True, kw_only=True)
class Raid:
    """One writer, and when it is killed."""

    open_store: OpenStore
    runs: Mapping[str, int]
    """The runs that it writes, and the number of the next batch of each."""
    topic: str
    size: int
    """Characters of one message."""
    delay: float
    """Seconds from when it has opened its store, or, if `opening`, from before that."""
    opening: bool


@dataclass(frozen=True)
class Killed:
    """How a writer ended, and how many batches of each run it was told are written."""

    exit_code: int
    acknowledged: Mapping[str, int]


Kill = Callable[[Raid], Killed]


@contextmanager
def killing() -> Generator[Kill]:
    """Yield what starts a writer, kills it and returns what is known of it."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()

    def kill(raid: Raid) -> Killed:
        ours.send(raid)
        return ours.recv()

    try:
        yield kill
    finally:
        ours.close()
        process.join()
        process.close()


def _serve(raids: Connection) -> None:
    imported = False
    while True:
        try:
            raid: Raid = raids.recv()
        except EOFError:
            return
        if not imported:
            raid.open_store()
            imported = True
        raids.send(_fork_and_kill(raid))


def _fork_and_kill(raid: Raid) -> Killed:
    for run_id, first in raid.runs.items():
        # A message that was encoded before the fork is known to the writer: kills hit what it does with the store.
        for index in range(first, first + 4):
            a_batch(run_id, index, topic=raid.topic, size=raid.size)
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        try:
            os.close(reading)
            asyncio.run(_write(raid, writing))
        except BaseException:  # noqa: BLE001 - this process must not go on as its parent does
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, 'rb', buffering=0) as pipe:
        pipe.read(len(_READY))
        time.sleep(raid.delay)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
        told = pipe.readall()
    acknowledged = {run_id: told.count(place) for place, run_id in enumerate(raid.runs)}
    return Killed(os.waitstatus_to_exitcode(status), acknowledged)


async def _write(raid: Raid, told: int) -> None:
    if raid.opening:
        os.write(told, _READY)
    store = raid.open_store()
    # The first write of a process is the one that sets up a schema, or sees that it is there.
    await store.append_event(an_event(f'{next(iter(raid.runs))}.opening'))
    if not raid.opening:
        os.write(told, _READY)

    async def write(place: int, run_id: str, first: int) -> None:
        for index in count(first):
            await store.commit(a_batch(run_id, index, topic=raid.topic, size=raid.size))
            os.write(told, bytes([place]))

    await asyncio.gather(*[write(place, *run) for place, run in enumerate(raid.runs.items())])
