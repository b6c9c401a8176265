"""The package's own activities tell Temporal that their worker lives, so that nobody waits long for a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from harness_temporal import HarnessDurability, StepPersistence
from harness_temporal.conversations import SqliteConversationStore
from harness_temporal.records import ContinuableSnapshot, Record
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.step_persistence.facts import RunFacts, SnapshotFacts
from harness_temporal.step_persistence.naming import NamingResult, SessionNamer
from harness_temporal.temporal import HistoryBudget
from harness_temporal.temporal.agents import AgentRegistry
from harness_temporal.temporal.naming import NamingInput, name_conversation_activity
from harness_temporal.temporal.snapshots import (
    LOAD_SNAPSHOT_ACTIVITY,
    SAVE_SNAPSHOT_ACTIVITY,
    LoadSnapshot,
    SaveSnapshot,
    load_snapshot_activity,
    save_snapshot_activity,
)
from harness_temporal.testing.samples import a_snapshot, turns
from tests.temporal.processes import Workers
from tests.temporal.runs import scheduled_in, start
from tests.temporal.test_continue_as_new import legs

pytestmark = pytest.mark.temporal

SNAPSHOT = SnapshotFacts(save=1, step_index=1, state='complete', base=None, base_length=0, bodies=[])


class Heart:
    """Of an activity whose work takes until it has beaten three times."""

    def __init__(self) -> None:
        self.beats = 0
        self._enough = asyncio.Event()
        self.environment = ActivityEnvironment()
        self.environment.info = replace(self.environment.info, heartbeat_timeout=timedelta(milliseconds=40))
        self.environment.on_heartbeat = self._beat

    def _beat(self, *details: Any) -> None:
        self.beats += 1
        if self.beats == 3:
            self._enough.set()

    async def work(self) -> None:
        async with asyncio.timeout(10):
            await self._enough.wait()


class SlowStore(InMemoryStepStore):
    """A store whose answers take their time."""

    work: Callable[[], Awaitable[None]] | None = None

    async def _wait(self) -> None:
        if self.work is not None:
            await self.work()

    async def commit(self, records: Sequence[Record]) -> None:
        await self._wait()
        await super().commit(records)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        await self._wait()
        return await super().latest_snapshot(run_id=run_id, include_interrupted=include_interrupted)


@pytest.mark.parametrize(
    ('activity', 'input'),
    [
        (load_snapshot_activity, LoadSnapshot(agent='a', run_id='run-1')),
        (load_snapshot_activity, LoadSnapshot(agent='a', run_id='run-1', include_interrupted=True)),
        (
            save_snapshot_activity,
            SaveSnapshot(
                agent='a',
                capability_id=None,
                run=RunFacts(run_id='run-1', registration_id='r').dump(),
                snapshot=SNAPSHOT.dump(),
            ),
        ),
    ],
    ids=['load', 'load-where-it-stood', 'save'],
)
async def test_activity_beats_while_the_store_takes_its_time(
    activity: Callable[[AgentRegistry], Callable[..., Any]], input: object
) -> None:
    store = SlowStore()
    await store.commit([a_snapshot(turns(2))])
    registry = AgentRegistry()
    persistence = StepPersistence[None](store=store)
    registry.add(Agent(TestModel(), name='a', capabilities=[persistence, HarnessDurability[None]()]))
    heart = Heart()
    store.work = heart.work

    assert await heart.environment.run(activity(registry), input)
    assert heart.beats >= 3


async def test_activity_beats_while_a_name_is_made(tmp_path: Path) -> None:
    heart = Heart()

    async def generate(prompt: str) -> NamingResult | None:
        await heart.work()

    namer = SessionNamer(store=SqliteConversationStore(tmp_path / 'conversations.db'), generate=generate)
    await heart.environment.run(name_conversation_activity(namer), NamingInput(tail='user: hello'))
    assert heart.beats >= 3


async def test_a_dead_worker_is_noticed_in_every_activity_of_a_run(client: Client, workers: Workers) -> None:
    workers.start()
    run = await start(client, workers, 'recite count recite look', history_budget=HistoryBudget(events=1))
    await run.result()

    scheduled = [activity for history in await legs(client, run) for activity in scheduled_in(history)]
    assert {LOAD_SNAPSHOT_ACTIVITY, SAVE_SNAPSHOT_ACTIVITY} < {activity.activity_type.name for activity in scheduled}
    for activity in scheduled:
        timeout = activity.heartbeat_timeout.ToTimedelta()
        assert timedelta() < timeout <= timedelta(seconds=30), activity.activity_type.name
