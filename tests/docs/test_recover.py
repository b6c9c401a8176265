"""The samples of docs/recover.md, run as they stand on a run that was cut off in its tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.testing.samples import a_run, a_snapshot, an_end, asks
from workflows.agent_run import AgentRunWorkflow

SAMPLES = re.findall(r'```python\n(.*?)```', (Path(__file__).parents[2] / 'docs' / 'recover.md').read_text(), re.DOTALL)


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Say what each tool gave."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return ModelResponse(
        parts=[TextPart(' | '.join(str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)))]
    )


@pytest.fixture
async def names() -> dict[str, Any]:
    """What the samples use: a store with a run whose first call has an outcome, and whose second has none."""
    store = InMemoryStepStore()
    calls = [ToolCallPart('lend', {}, 'first'), ToolCallPart('charge', {}, 'second')]
    history: list[ModelMessage] = [asks('lend it'), ModelResponse(parts=calls)]
    lent = an_end(tool_call_id='first', tool_name='lend', step_index=1, value=b'{"result":"lent","kind":"tool_return"}')
    await store.commit([a_run(), a_snapshot(history, state='interrupted'), lent])

    async def lend() -> str:
        raise AssertionError('it was lent')

    async def charge() -> str:
        raise AssertionError('it may have been charged')

    persistence = StepPersistence[Any](store=store, agent_name='librarian')
    librarian = Agent(
        FunctionModel(answer),
        name='librarian',
        tools=[lend, charge],
        capabilities=[persistence, HarnessDurability[Any]()],
    )
    names: dict[str, Any] = {'Client': Client, 'store': store, 'librarian': librarian}
    for sample in SAMPLES:
        exec(compile(sample, 'recover.md', 'exec'), names)
    return names


async def test_a_run_goes_on_here(names: dict[str, Any]) -> None:
    lent, charged = (await names['resume_here']('run-1')).split(' | ')
    assert lent == 'lent'
    assert 'interrupted' in charged


@pytest.mark.temporal
async def test_a_run_goes_on_in_a_workflow(names: dict[str, Any], temporal_server: DevServer) -> None:
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[names['librarian']])])
    async with Worker(client, task_queue='librarian', workflows=[AgentRunWorkflow], build_id='1'):
        lent, charged = (await names['resume'](client, 'run-1')).split(' | ')
    assert lent == 'lent'
    assert 'interrupted' in charged
