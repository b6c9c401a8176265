"""Writers of every store are killed at random points, many times; a fresh store looks at what they left.

What a store must hold after `n` batches of a run is what the store in memory holds after them, so everything is
compared, and `n` may only be the number of acknowledged batches or one more. The next write is the one that was cut
off, done again. On MongoDB it goes to another run: the server keeps a dead writer's transaction for a minute, and the
runs that it touched wait for that long (see `MongoStepStore`).

Which points are hit follows from a seed, but also from the machine. A failure names the seed: set it as
`HARNESS_TEST_SEED` to kill after the same times again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness_temporal.encryption import Key, KeyRing
from harness_temporal.records import (
    Batch,
    ContinuableSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)
from harness_temporal.stores import FileStepStore, InMemoryStepStore, SqliteStepStore, StepStore
from tests.conformance.opening import drop_schema
from tests.mongo_server import URL_VARIABLE, drop_database
from tests.stores.killed_writers import Kill, OpenStore, Raid, a_batch, child_of, killing

KILLS = int(os.environ.get('HARNESS_TEST_KILLS', '60'))
"""For each store. What is claimed of them was seen with 200."""
LARGE_KILLS = max(1, KILLS // 10)
FURTHER_KILLS = 15
"""At most, in a window that grows, if all before came too early: those prove nothing."""
KILLS_PER_PLACE, KILLS_PER_RUN = 20, 5
SMALL, LARGE = 200, 2_000_000
"""Characters of one message."""
OPENING = 0.1
"""Seconds within which a writer is killed that opens a store where none was."""
PATIENCE = 20.0
"""Seconds within which a fresh store has read what a killed writer left, and has written on."""
KEPT_SNAPSHOTS = 3
SEED = int(os.environ.get('HARNESS_TEST_SEED', random.randrange(2**32)))


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A kind of store, and what its writers may leave behind."""

    open_at: Callable[[str], OpenStore]
    """Make what opens a store at a place of this name: a folder or a schema, which is not there at first."""
    settling: float = 0.0
    """Seconds within which a server has done, or dropped, what a killed writer had sent."""
    holds_runs: bool = False
    """Whether a server may keep a killed writer's transaction, and with it the runs, for longer than a test waits."""


@dataclass(frozen=True)
class Contents:
    """Everything that a store has of one run; of a writer's run, also everything of its child."""

    runs: list[RunRecord]
    events: list[tuple[int, StepEvent]]
    effects: list[tuple[int, ToolEffectRecord]]
    snapshots: list[tuple[int, ContinuableSnapshot]]
    response: ModelResponseRecord | None
    child: Contents | None = None

    @classmethod
    async def of(cls, store: StepStore, run_id: str, *, child: str | None = None) -> Contents:
        return cls(
            await store.list_runs(conversation_id=run_id),
            [(event.seq or 0, event) for event in await store.list_events(run_id=run_id)],
            [(effect.seq or 0, effect) for effect in await store.list_tool_effects(run_id=run_id)],
            [(one.seq or 0, one) for one in await store.list_snapshots(run_id=run_id, include_interrupted=True)],
            await store.get_model_response(run_id=run_id, key='latest'),
            await cls.of(store, child) if child is not None else None,
        )

    def check_numbers(self) -> None:
        numbers = [[seq for seq, _ in records] for records in (self.events, self.effects, self.snapshots)]
        assert numbers == [sorted(each) for each in numbers]
        everything = [0, *chain(*numbers)]
        assert len(set(everything)) == len(everything)
        if self.child is not None:
            self.child.check_numbers()


@dataclass
class Run:
    """A run that writers write, and what must be in the store of it."""

    run_id: str
    topic: str
    size: int
    batches: int = 0
    """How many batches are known to be written."""
    expected: StepStore = field(default_factory=partial(InMemoryStepStore, max_snapshots_per_run=KEPT_SNAPSHOTS))
    ended: set[str] = field(default_factory=set[str])
    """The ledger's entries that a reader has seen as completed."""

    async def know(self, batches: int) -> None:
        """Expect so many batches from here on."""
        for index in range(self.batches, batches):
            await self.expected.commit(self.batch(index))
        self.batches = max(self.batches, batches)

    async def write(self, store: StepStore, index: int) -> None:
        """Write a batch: the next one, or the last one again."""
        await store.commit(self.batch(index))
        await self.know(index + 1)

    async def check(self, store: StepStore, *, one_more: bool = False, settling: float = 0.0) -> None:
        """Check that the store has what is known, perhaps one batch more, and no part of another."""
        until = time.monotonic() + settling
        while True:
            found = await self._contents(store)
            if one_more and len(found.events) > self.batches:
                one_more = False
                await self.know(self.batches + 1)
            expected = await self._contents(self.expected)
            if found == expected or time.monotonic() >= until:
                break
            await asyncio.sleep(0.02)
        found.check_numbers()
        ended = {effect.ledger_key for _, effect in found.effects if effect.status == 'completed'}
        assert self.ended <= ended, 'the ledger went back'
        self.ended = ended
        assert len(found.events) == self.batches, 'other batches than those that were acknowledged, and one'
        assert found == expected

    def batch(self, index: int) -> Batch:
        return a_batch(self.run_id, index, topic=self.topic, size=self.size)

    async def _contents(self, store: StepStore) -> Contents:
        return await Contents.of(store, self.run_id, child=child_of(self.run_id))


@dataclass
class Campaign:
    """Kills writers one after another, several at one place and on the same runs, and checks the store after each."""

    kill: Kill
    backend: Backend
    size: int = SMALL
    seed: int = SEED
    window: float = 0.03
    """Seconds within which a writer is killed; it follows the time that a batch takes here."""
    acknowledged: int = 0
    """How many batches the writers were told are written."""
    finished: int = 0
    """How many more were written."""

    async def run(self, kills: int) -> None:
        chance = random.Random(self.seed)
        one_run_per_kill = self.backend.holds_runs or self.size == LARGE
        names = ('a', 'b') if self.size == SMALL else ('a',)
        open_store, runs = self.backend.open_at('none'), list[Run]()
        for number in range(kills + FURTHER_KILLS):
            if number >= kills and self.acknowledged:
                break
            opening = number % KILLS_PER_PLACE == 0
            delay = chance.random() * (OPENING if opening else self.window)
            try:
                if opening:
                    open_store, runs = self.backend.open_at(f'at_{number}'), []
                if one_run_per_kill or number % KILLS_PER_RUN == 0:
                    runs += [self._new_run(number, name) for name in names]
                writing = runs[-len(names) :]
                acknowledged = self._kill_writer(open_store, writing, delay=delay, opening=opening)
                async with asyncio.timeout(PATIENCE), _opened(open_store) as store:
                    cut_off = [await self._look(store, run, acknowledged[run.run_id]) for run in writing]
                    if self.backend.holds_runs:
                        runs.insert(0, self._new_run(number, 'other'))
                        await runs[0].write(store, 0)
                    else:
                        for run, index in zip(writing, cut_off, strict=True):
                            await self._write_on(store, run, index)
                    if (number + 1) % KILLS_PER_PLACE == 0:
                        # Later writers spoiled nothing. A batch that was not written again may be there by now.
                        for run in chance.sample(runs, min(len(runs), 8)):
                            await run.check(store, one_more=self.backend.holds_runs)
            except BaseException as error:
                error.add_note(f'HARNESS_TEST_SEED={self.seed}: kill {number}, {1000 * delay:.2f} ms, {opening=}')
                raise
        assert self.acknowledged > 0

    def _kill_writer(
        self, open_store: OpenStore, runs: Sequence[Run], *, delay: float, opening: bool
    ) -> Mapping[str, int]:
        killed = self.kill(
            Raid(
                open_store=open_store,
                runs={run.run_id: run.batches for run in runs},
                topic=runs[0].topic,
                size=self.size,
                delay=delay,
                opening=opening,
            )
        )
        assert killed.exit_code == -signal.SIGKILL
        if not opening:
            # About two batches long, however fast store and machine are.
            self.window *= 0.8 if any(killed.acknowledged.values()) else 1.3
        return killed.acknowledged

    async def _look(self, store: StepStore, run: Run, acknowledged: int) -> int:
        """Check what a killed writer left of a run. Returns the number of the batch that it was not told of."""
        known = run.batches + acknowledged
        await run.know(known)
        await run.check(store, one_more=True, settling=self.backend.settling)
        self.acknowledged += acknowledged
        self.finished += run.batches - known
        return known

    async def _write_on(self, store: StepStore, run: Run, cut_off: int) -> None:
        """Write the batch that was cut off, whether it is there or not, and the one after it."""
        await run.write(store, cut_off)
        await run.write(store, cut_off + 1)
        await run.check(store)

    def _new_run(self, number: int, name: str) -> Run:
        # A message is stored once, so new runs have new ones; those that are written at once share theirs.
        return Run(f'{number}.{name}', topic=f'{number}', size=self.size)


@asynccontextmanager
async def _opened(open_store: OpenStore) -> AsyncGenerator[StepStore]:
    store = open_store()
    try:
        yield store
    finally:
        await store.aclose()


# --- backends ---


@pytest.fixture
def file(tmp_path: Path) -> Backend:
    return Backend(open_at=lambda name: partial(FileStepStore, tmp_path / name, max_snapshots_per_run=KEPT_SNAPSHOTS))


@pytest.fixture
def sqlite(tmp_path: Path) -> Backend:
    return Backend(
        open_at=lambda name: partial(SqliteStepStore, tmp_path / f'{name}.db', max_snapshots_per_run=KEPT_SNAPSHOTS)
    )


@pytest.fixture
async def in_postgres(postgres: str) -> AsyncIterator[Backend]:
    from harness_temporal.stores import PostgresStepStore

    prefix, schemas = f'killed_{uuid4().hex}', set[str]()

    def open_at(name: str) -> OpenStore:
        schemas.add(schema := f'{prefix}_{name}')
        return partial(PostgresStepStore, postgres, schema=schema, max_snapshots_per_run=KEPT_SNAPSHOTS)

    yield Backend(open_at=open_at, settling=5)
    for schema in schemas:
        await drop_schema(postgres, schema)


@pytest.fixture
async def in_mongo(mongo: str) -> AsyncIterator[Backend]:
    from harness_temporal.stores import MongoStepStore

    prefix, databases = f'killed_{uuid4().hex}', set[str]()

    def open_at(name: str) -> OpenStore:
        databases.add(database := f'{prefix}_{name}')
        return partial(MongoStepStore, db_url=mongo, database=database, max_snapshots_per_run=KEPT_SNAPSHOTS)

    yield Backend(open_at=open_at, settling=5, holds_runs=True)
    if URL_VARIABLE in os.environ:
        # Waits until the server has dropped the killed writers' transactions. A server of our own is gone anyway.
        for database in databases:
            await drop_database(mongo, database)


@pytest.fixture(
    params=[
        'file',
        'sqlite',
        pytest.param('in_postgres', marks=pytest.mark.postgres),
        pytest.param('in_mongo', marks=pytest.mark.mongo),
    ]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.getfixturevalue(request.param)


@pytest.fixture
def kill() -> Iterator[Kill]:
    with killing() as kill:
        yield kill


# --- tests ---


@pytest.mark.timeout(600)
async def test_killed_writer_leaves_whole_batches_and_the_next_write_succeeds(kill: Kill, backend: Backend) -> None:
    await Campaign(kill, backend).run(KILLS)


@pytest.mark.timeout(600)
async def test_writer_killed_in_a_large_batch_leaves_all_of_it_or_nothing(kill: Kill, backend: Backend) -> None:
    await Campaign(kill, backend, size=LARGE, window=0.3).run(LARGE_KILLS)


class Encrypting(SqliteStepStore):
    """Can be sent to another process, unlike its keys."""

    def __init__(self, database: Path, **settings: Any) -> None:
        super().__init__(database, keys=KeyRing.of(Key('k1', bytes(32))), **settings)


async def test_killed_writer_that_encrypts_leaves_whole_batches_too(kill: Kill, tmp_path: Path) -> None:
    backend = Backend(
        open_at=lambda name: partial(Encrypting, tmp_path / f'{name}.db', max_snapshots_per_run=KEPT_SNAPSHOTS)
    )
    await Campaign(kill, backend).run(10)


class InTwoTransactions(SqliteStepStore):
    """Writes a batch in two parts."""

    async def commit(self, records: Batch) -> None:
        await super().commit(records[:-1])
        await super().commit(records[-1:])


class TooEarly(SqliteStepStore):
    """Writes a batch after it has said that it is written."""

    _writing: asyncio.Task[None] | None = None

    async def commit(self, records: Batch) -> None:
        await self._finish()
        self._writing = asyncio.create_task(super().commit(records))

    async def _finish(self) -> None:
        if self._writing is not None:
            await self._writing

    async def aclose(self) -> None:
        await self._finish()
        await super().aclose()


@pytest.mark.parametrize('wrong', [InTwoTransactions, TooEarly])
async def test_store_that_does_wrong_is_found_out(kill: Kill, tmp_path: Path, wrong: type[SqliteStepStore]) -> None:
    backend = Backend(
        open_at=lambda name: partial(wrong, tmp_path / f'{name}.db', max_snapshots_per_run=KEPT_SNAPSHOTS)
    )
    run, open_store = Run('run-1', topic='', size=SMALL), backend.open_at('alive')
    async with _opened(open_store) as store:
        for index in range(8):
            await run.write(store, index)
    async with _opened(open_store) as store:
        await run.check(store)  # as long as nobody is killed, nothing is wrong
    with pytest.raises(AssertionError, match=r'HARNESS_TEST_SEED=\d+: kill \d+'):
        await Campaign(kill, backend).run(KILLS)
