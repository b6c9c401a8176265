"""A worker that dies with payload storage on leaves a run that goes on elsewhere, with an empty cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_temporal.temporal.payloads import Key
from tests.temporal.effects import noted
from tests.temporal.payloads.workers import Setup, noise
from tests.temporal.processes import wait_until_dead

pytestmark = pytest.mark.temporal


@pytest.mark.parametrize('keys', ['', Key.generate('one').dump()], ids=['plain', 'encrypted'])
async def test_a_run_goes_on_after_its_worker_was_killed(setup: Setup, keys: str) -> None:
    deadly = replace(setup, keys=keys, after_effect='die')
    (setup.folder / 'told').touch()
    run = await deadly.start('wait page page', 'pages')
    doomed = deadly.process()
    successor = None
    try:
        await wait_until_dead(doomed)
        successor = deadly.process()
        output = (await run.result()).output
    finally:
        for process in filter(None, (doomed, successor)):
            process.kill()
            process.join()
    result = f'TOP-SECRET-RESULT {noise(3000)}'
    assert output == f'told | {result} | {result}'
    assert len(noted(setup.folder, 'read')) == 3, 'the call that the death cut short was made again: it is declared'
    await deadly.replay(await run.fetch_history())
