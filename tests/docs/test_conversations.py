"""The examples of `docs/conversations.md`, run as they stand. Only the models and the wait are ours."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import FunctionModel

from harness_temporal.errors import ConversationConflict

PAGE = Path(__file__).parents[2] / 'docs' / 'conversations.md'
EXAMPLES = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)


def fail(messages: object, info: object) -> ModelResponse:
    raise RuntimeError('no model')


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The examples as one module, as a reader would write them down."""
    source = '\n'.join(EXAMPLES)
    for shown, ours in {
        "'openai:gpt-5'": "TestModel(custom_output_text='the invoices')",
        "'openai:gpt-5-mini'": "TestModel(custom_output_args={'title': 'A name'})",
        'asyncio.sleep(5)': 'is_named()',
    }.items():
        assert source.count(shown) == 1
        source = source.replace(shown, ours)
    header = 'from pydantic_ai.models.test import TestModel\n'
    (tmp_path / 'conversations_example.py').write_text(header + source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module('conversations_example')
    del sys.modules['conversations_example']


async def test_the_examples_keep_name_and_delete_a_conversation(
    example: Any, capsys: pytest.CaptureFixture[str]
) -> None:

    async def is_named() -> None:
        async with asyncio.timeout(20):
            while True:
                [summary] = await example.conversations.listing()
                if summary.title == 'A name':
                    return
                await asyncio.sleep(0.01)

    example.is_named = is_named
    await example.serve(['Where are they?'])
    [summary] = await example.conversations.listing()
    assert (summary.revision, summary.outcome, summary.message_count) == (3, 'completed', 2)
    steps = example.SqliteStepStore('runs.db')
    assert [run.conversation_id for run in await steps.list_runs()] == [summary.id]

    running = await example.conversations.save(summary=example.replace(summary, outcome='running'), messages=[])
    with pytest.raises(ConversationConflict, match='busy'):
        await example.turn(summary.id, 'again')
    assert await example.expire() == []
    await example.conversations.save(summary=example.replace(running, outcome='ready'), messages=[])
    with example.agent.override(model=FunctionModel(fail)), pytest.raises(RuntimeError, match='no model'):
        await example.turn(summary.id, 'again')
    await example.turn(summary.id, 'The invoices again.')
    other = await example.begin('elsewhere')
    await example.turn(other.id, 'Forget this.')
    [of_other] = await steps.list_runs(conversation_id=other.id)
    assert await example.forget(other.id) == [of_other.run_id]
    assert [found.id for found in await example.conversations.listing()] == [summary.id]
    await example.tidy_up()
    assert 'A name' in capsys.readouterr().out
    assert await example.conversations.listing() == []
    assert await steps.list_runs() == []
    await steps.aclose()
    await example.runs.aclose()
    await example.conversations.aclose()
