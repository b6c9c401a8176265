"""A media store that is away only delays a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.temporal.payloads.workers import Setup, noise
from tests.temporal.runs import until
from tests.temporal.scenarios import noted

pytestmark = pytest.mark.temporal


async def test_a_run_goes_on_when_the_media_store_is_back(setup: Setup) -> None:
    async with setup.working():
        run = await setup.start('wait page', 'pages')
        await until(lambda: bool(noted(setup.folder, 'waiting')))
        setup.away.touch()
        (setup.folder / 'told').touch()
        # The workflow cannot send the next request.
        await until(lambda: len(noted(setup.folder, 'refused')) > 1)
        setup.away.unlink()
        assert (await run.result()).output == f'told | TOP-SECRET-RESULT {noise(3000)}'


async def test_a_tool_whose_result_could_not_be_stored_does_not_run_again(setup: Setup) -> None:
    losing = replace(setup, after_effect='lose_store')
    async with losing.working():
        run = await losing.start('page', 'pages')
        await until(lambda: bool(noted(setup.folder, 'refused')))
        setup.away.unlink()
        assert (await run.result()).output == f'TOP-SECRET-RESULT {noise(3000)}'
    assert len(noted(setup.folder, 'read')) == 1
