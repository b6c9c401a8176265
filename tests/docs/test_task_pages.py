"""The samples of the smaller task pages, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import AgentRunInput, HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.temporal.dev_server import DevServer
from workflows.agent_run import AgentRunWorkflow

DOCS = Path(__file__).parents[2] / 'docs'


def sample(page: str) -> str:
    [code] = re.findall(r'```python\n(.*?)```', (DOCS / page).read_text(), re.DOTALL)
    return code


def test_a_store_of_ones_own_runs_the_suite(tmp_path: Path) -> None:
    (tmp_path / 'test_mine.py').write_text(sample('write-a-store.md'))
    # A few rules are enough to see that the class is a suite; all of them run in tests/conformance.
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'test_mine.py', '-k', 'idle or reopen']
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout
    assert re.search(r'\d+ passed', ran.stdout)


@pytest.mark.temporal
async def test_a_history_is_replayed_before_an_upgrade(temporal_server: DevServer) -> None:
    names: dict[str, Any] = {}
    exec(compile(sample('upgrade.md'), 'upgrade.md', 'exec'), names)

    def agent(boundaries: Any) -> Agent[None, str]:
        persistence = StepPersistence[None](boundaries=boundaries)
        return Agent(TestModel(), name='librarian', capabilities=[persistence, HarnessDurability[None]()])

    before, after = agent('inline'), agent('dedicated')
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[before])])
    async with Worker(client, task_queue='docs', workflows=[AgentRunWorkflow], build_id='1'):
        await client.execute_workflow(
            AgentRunWorkflow.run, AgentRunInput(agent='librarian', prompt='hello'), id='old', task_queue='docs'
        )
    assert await names['replays'](client, [before], [AgentRunWorkflow], 'old') is None
    assert 'Nondeterminism' in str(await names['replays'](client, [after], [AgentRunWorkflow], 'old'))
