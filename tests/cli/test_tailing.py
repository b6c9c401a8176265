"""`runs tail` beside a writer."""

from __future__ import annotations

import asyncio
import json

import pytest

from harness_temporal.cli.runs.tailing import tail_run
from harness_temporal.stores.opening import open_store
from tests.cli.seeding import a_run, event


async def test_tail_prints_events_that_come_while_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store('sqlite:runs.db')
    await store.commit([a_run('run-1'), event('run-1', 'run_started')])
    seen: list[str] = []

    async def printed(kind: str) -> None:
        while kind not in seen:
            seen.extend(json.loads(line)['kind'] for line in capsys.readouterr().out.splitlines())
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20):
        tail = asyncio.create_task(tail_run('sqlite:runs.db', 'run-1', follow=True, as_json=True))
        await printed('run_started')
        assert not tail.done()
        await store.commit([event('run-1', 'model_request_started', 1)])
        await printed('model_request_started')
        await store.commit([event('run-1', 'run_failed', 1)])
        await tail
    await printed('run_failed')
    assert seen == ['run_started', 'model_request_started', 'run_failed']
    await store.aclose()
