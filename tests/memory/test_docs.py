"""The samples of `docs/memory.md`, run as they stand. Only the model and the embeddings are ours."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent

from harness_temporal.memory import MAIN, Note, Notebook
from tests.memory.models import Caller

PAGE = Path(__file__).parents[2] / 'docs' / 'memory.md'
SAMPLES = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)
MODEL = "'openai:gpt-5'"


async def _nearest(query: str, texts: list[tuple[str, str]]) -> list[str]:
    return [name for name, text in texts if query == 'drinks' and 'tea' in text]


async def test_the_samples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(
        ('write_memory', {'text': 'has a cat'}),
        ('team_write_memory', {'text': 'serve tea', 'note': 'rules'}),
        ('team_search_memory', {'query': 'drinks'}),
    )
    source = '\n'.join(SAMPLES)
    assert source.count(MODEL) == 1
    # A module of its own, for the annotations of its tools and dependencies.
    example: Any = ModuleType('memory_example')
    monkeypatch.setitem(sys.modules, example.__name__, example)
    vars(example).update(MODEL=caller.model, embeddings=SimpleNamespace(nearest=_nearest))
    monkeypatch.chdir(tmp_path)
    exec(compile(source.replace(MODEL, 'MODEL'), PAGE, 'exec'), vars(example))

    await example.introduce('Ann', 'likes tea')
    await example.introduce('Ann', 'likes tea')
    deps = example.Deps('Ann')
    await example.librarian.run('go', deps=deps, capabilities=[example.team])
    assert await example.memories.read(Notebook('librarian', 'Ann'), MAIN) == Note(MAIN, 'likes tea\nhas a cat')
    assert await example.memories.read(Notebook('team', 'default'), 'rules') == Note('rules', 'serve tea')
    hit = {'note': 'rules', 'line': 1, 'excerpt': 'serve tea'}
    assert repr(hit) in str(caller.sent[-1]), 'what the ranking named'

    dedicated = Caller()
    agent = Agent(dedicated.model, name='librarian', deps_type=example.Deps, capabilities=example.capabilities)
    await agent.run('go', deps=deps)
    assert 'likes tea\nhas a cat' in dedicated.blocks[0][0]
    await example.erase('Ann')
    assert await example.memories.read(Notebook('librarian', 'Ann'), MAIN) is None
    await example.memories.aclose()
