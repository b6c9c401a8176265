"""Stores are maintained by a workflow, on a schedule."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from harness_temporal.conversations import ConversationSummary, SqliteConversationStore
from harness_temporal.media import DiskMediaStore
from harness_temporal.records import utc_now
from harness_temporal.step_persistence import SqliteStepStore, StepPersistence
from harness_temporal.temporal import HarnessDurability, HarnessPlugin, MaintenanceInput, MaintenanceOutput
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.payloads import PayloadStorage
from harness_temporal.testing.samples import a_run, a_snapshot, turns
from tests.temporal.processes import Workers
from tests.temporal.runs import until
from workflows.maintenance import StoreMaintenanceWorkflow, schedule_maintenance

pytestmark = pytest.mark.temporal

DAY = timedelta(days=1)


async def test_a_schedule_deletes_what_is_old_and_keeps_what_is_young(client: Client, workers: Workers) -> None:
    store = workers.config.open_store()
    now = utc_now()
    for run_id, at in (('old', now - 10 * DAY), ('young', now - DAY)):
        await store.commit([a_run(run_id, started_at=at), a_snapshot(turns(2), run_id, timestamp=at)])
    workers.start()
    input = MaintenanceInput(idle_for=5 * DAY)
    schedule_id = await schedule_maintenance(client, input, task_queue=workers.task_queue, every=DAY)
    # Saying it again changes the schedule instead of failing.
    assert schedule_id == await schedule_maintenance(client, input, task_queue=workers.task_queue, every=2 * DAY)
    schedule = client.get_schedule_handle(schedule_id)
    [interval] = (await schedule.describe()).schedule.spec.intervals
    assert interval.every == 2 * DAY
    await schedule.trigger()

    async def is_gone() -> bool:
        return await store.get_run(run_id='old') is None

    try:
        await until(is_gone)
    finally:
        await schedule.delete()
    assert await store.get_run(run_id='young') is not None
    assert await store.latest_snapshot(run_id='young') is not None


async def test_the_workflow_says_what_it_deleted(client: Client, workers: Workers) -> None:
    store = workers.config.open_store()
    at = utc_now() - 10 * DAY
    await store.commit([a_run('old', started_at=at), a_snapshot(turns(3), 'old', timestamp=at)])
    workers.start()
    deleted = await client.execute_workflow(
        StoreMaintenanceWorkflow.run,
        MaintenanceInput(idle_for=5 * DAY),
        id=f'maintenance-{workers.task_queue}',
        task_queue=workers.task_queue,
    )
    assert deleted == MaintenanceOutput(runs=1, messages=3)


def age_file(directory: Path, content: bytes, *, by: timedelta) -> None:
    at = (utc_now() - by).timestamp()
    [path] = [path for path in directory.rglob('*') if path.is_file() and path.read_bytes() == content]
    os.utime(path, (at, at))


async def test_pieces_of_payloads_expire(temporal_server: DevServer, task_queue: str, tmp_path: Path) -> None:
    media = DiskMediaStore(tmp_path / 'pieces')
    old, young = await media.put(b'old'), await media.put(b'young')
    age_file(tmp_path / 'pieces', b'old', by=40 * DAY)
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(payloads=PayloadStorage(media))])
    async with Worker(client, task_queue=task_queue, workflows=[StoreMaintenanceWorkflow], build_id='tests'):
        deleted = await client.execute_workflow(
            StoreMaintenanceWorkflow.run,
            MaintenanceInput(payloads_untouched_for=30 * DAY),
            id=f'maintenance-{task_queue}',
            task_queue=task_queue,
        )
    assert deleted == MaintenanceOutput(payload_pieces=1)
    assert not await media.exists(old)
    assert await media.exists(young)


async def test_pieces_that_a_history_may_refer_to_do_not_expire(
    temporal_server: DevServer, task_queue: str, tmp_path: Path
) -> None:
    payloads = PayloadStorage(DiskMediaStore(tmp_path / 'pieces'))
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(payloads=payloads)])
    async with Worker(client, task_queue=task_queue, workflows=[StoreMaintenanceWorkflow], build_id='tests'):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                StoreMaintenanceWorkflow.run,
                # The server of the tests keeps histories for a day.
                MaintenanceInput(payloads_untouched_for=DAY),
                id=f'maintenance-{task_queue}',
                task_queue=task_queue,
            )
    refused = failed.value.cause.__cause__
    assert isinstance(refused, ApplicationError)
    assert refused.type == 'ConfigurationError'
    assert 'keeps histories for 1 day' in refused.message


@pytest.mark.parametrize(
    ('input', 'needed'),
    [
        (MaintenanceInput(payloads_untouched_for=30 * DAY), 'payloads'),
        (MaintenanceInput(conversations_idle_for=30 * DAY), 'conversations'),
    ],
    ids=['payloads', 'conversations'],
)
async def test_a_worker_without_the_store_says_so(
    client: Client, task_queue: str, input: MaintenanceInput, needed: str
) -> None:
    async with Worker(client, task_queue=task_queue, workflows=[StoreMaintenanceWorkflow], build_id='tests'):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                StoreMaintenanceWorkflow.run, input, id=f'maintenance-{task_queue}', task_queue=task_queue
            )
    assert f'needs `HarnessPlugin({needed}=' in str(failed.value.cause.__cause__)


async def test_conversations_expire_with_their_runs(
    temporal_server: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = SqliteStepStore(tmp_path / 'runs.db')
    conversations = SqliteConversationStore(tmp_path / 'runs.db')
    now = utc_now()
    for name, at in (('old', now - 10 * DAY), ('young', now - DAY)):
        await steps.commit([a_run(f'run-{name}', started_at=at, conversation_id=name)])
        monkeypatch.setattr('harness_temporal.conversations.protocol.utc_now', lambda at=at: at)
        await conversations.save(summary=ConversationSummary(id=name), messages=turns(2))
    monkeypatch.undo()
    # Older than both, but it has no head: what is said of conversations does not touch it.
    await steps.commit([a_run('run-alone', started_at=now - 20 * DAY, conversation_id='alone')])
    agent = Agent(
        TestModel(), name='keeper', capabilities=[StepPersistence[None](store=steps), HarnessDurability[None]()]
    )
    plugin = HarnessPlugin(agents=[agent], conversations=conversations)
    client = await Client.connect(temporal_server.address, plugins=[plugin])
    async with Worker(client, task_queue=task_queue, workflows=[StoreMaintenanceWorkflow], build_id='tests'):

        async def maintained(input: MaintenanceInput) -> MaintenanceOutput:
            return await client.execute_workflow(
                StoreMaintenanceWorkflow.run, input, id=f'maintenance-{task_queue}', task_queue=task_queue
            )

        input = MaintenanceInput(conversations_idle_for=5 * DAY)
        assert await maintained(input) == MaintenanceOutput(conversations=1)
        assert {run.run_id for run in await steps.list_runs()} == {'run-young', 'run-alone'}
        # A conversation stays when its runs go, unless it is to go too.
        assert await maintained(MaintenanceInput(idle_for=DAY / 2)) == MaintenanceOutput(runs=2)
        assert [found.id for found in await conversations.listing()] == ['young']
        assert await maintained(replace(input, idle_for=5 * DAY)) == MaintenanceOutput()
        gone = await maintained(MaintenanceInput(conversations_idle_for=DAY / 2))
        assert gone == MaintenanceOutput(conversations=1, messages=2)
    assert await conversations.listing() == []
    await conversations.aclose()
    await steps.aclose()
