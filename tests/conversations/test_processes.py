"""Two processes on one conversation: each revision has one writer, and nothing of either is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.conversations.opening import open_place
from tests.conversations.saving_process import SAVES


@pytest.fixture
def locations(tmp_path: Path, postgres: str, schema: str, mongo: str, database: str) -> list[list[str]]:
    """Return one place of each kind. All at once, because starting processes takes longer than what they do."""
    return [['sqlite', str(tmp_path / 'runs.db')], ['postgres', postgres, schema], ['mongo', mongo, database]]


@pytest.mark.postgres
@pytest.mark.mongo
async def test_two_processes_save_one_conversation(locations: list[list[str]]) -> None:
    command = [sys.executable, '-m', 'tests.conversations.saving_process', json.dumps(locations)]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b'ready\n'
    await asyncio.gather(*(process.communicate(b'\n') for process in processes))
    assert [process.returncode for process in processes] == [0, 0]
    wanted = {f'{process.pid} {number}' for process in processes for number in range(SAVES)}
    for location in locations:
        place = open_place(*location)
        saved = await place.conversations.get(conversation_id='shared')
        assert saved.summary.revision == saved.summary.message_count == 2 * SAVES
        said = [part.content for message in saved.messages for part in message.parts]
        assert len(said) == len(wanted)
        assert {*said} == wanted
        await place.conversations.aclose()
        await place.steps.aclose()
