"""The samples of `docs/threads.md` and `docs/delegation.md`, run as they stand, with models and a server of ours."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import HarnessClient, HarnessPlugin
from harness_temporal.errors import ThreadError
from harness_temporal.temporal.dev_server import DevServer
from workflows.agent_run import AgentRunWorkflow
from workflows.thread import ThreadWorkflow

pytestmark = pytest.mark.temporal

DOCS = Path(__file__).parents[2] / 'docs'


@pytest.fixture
def example(
    request: pytest.FixtureRequest, temporal_server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The samples of a page as one module, as a reader would write them down."""
    page: str = request.param
    source = '\n'.join(re.findall(r'```python\n(.*?)```', (DOCS / f'{page}.md').read_text(), re.DOTALL))
    assert "'openai:gpt-5'" in source
    for shown in ("'openai:gpt-5'", "'openai:gpt-5-mini'"):
        source = source.replace(shown, 'TestModel()')
    source = source.replace('localhost:7233', temporal_server.address)
    name = f'{page}_example'
    (tmp_path / f'{name}.py').write_text('from pydantic_ai.models.test import TestModel\n' + source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name)
    del sys.modules[name]


@pytest.mark.parametrize('example', ['threads'], indirect=True)
async def test_a_thread_is_opened_talked_to_looked_at_and_closed(
    example: Any, temporal_server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[example.clerk])])
    async with Worker(client, task_queue='harness', workflows=[ThreadWorkflow], build_id='docs'):
        threads = await example.connect()
        assert await example.talk(threads) == '{"refund":"refunded a"}'
        await example.look_at(threads, 'thread_1042')
        assert capsys.readouterr().out.startswith('idle Order 1042 0 ')
        await example.tidy_up(threads, 'thread_1042')
        assert (await threads.get('thread_1043').status()).name == 'Follow-up'
        with pytest.raises(ThreadError, match='closed'):
            await threads.open('thread_1042')
    await example.store.aclose()


@pytest.mark.parametrize('example', ['delegation'], indirect=True)
async def test_work_is_handed_over(
    example: Any, temporal_server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = [example.lead, example.researcher]
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=agents)])
    async with Worker(client, task_queue='harness', workflows=[AgentRunWorkflow], build_id='docs'):
        lead = HarnessClient(client, agent='lead', task_queue='harness')
        ended = await (await lead.start('What is the truth?')).result()
    assert 'delegate_to_researcher' in ended.output
    await example.print_tree(ended.run_id)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ['lead', 'researcher', 'researcher']
    await example.store.aclose()
