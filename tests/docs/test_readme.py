"""The README's examples, run as they stand. Only the model, the server and the outside service are ours."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness_temporal.temporal.dev_server import DevServer, dev_server

README = Path(__file__).parents[2] / 'README.md'
EXAMPLES = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DevServer]:
    with dev_server(ui=False, log=tmp_path / 'server.log') as running:
        yield running


@pytest.fixture
def example(server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The examples that define things, as one module, as a reader would write them down."""
    source = '\n'.join(code for code in EXAMPLES if 'continue_run' not in code)
    assert source.count("'openai:gpt-5'") == 1
    source = source.replace("'openai:gpt-5'", 'TestModel()').replace('localhost:7233', server.address)
    header = 'from pydantic_ai.models.test import TestModel\nfrom tests.docs.test_readme import payments\n'
    (tmp_path / 'readme_example.py').write_text(header + source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module('readme_example')
    del sys.modules['readme_example']


async def _charge(cents: int, *, idempotency_key: str) -> str:
    return f'charged {cents} as {idempotency_key}'


payments = SimpleNamespace(charge=_charge)


async def test_the_examples_run_and_what_they_leave_can_be_continued(
    example: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await example.main()
    assert 'charged' in capsys.readouterr().out

    [run] = await example.store.list_runs()
    assert run.agent_name == 'librarian'
    [effect] = await example.store.list_tool_effects(run_id=run.run_id)
    assert effect.effect_summary.startswith('charge')

    [continues] = [code for code in EXAMPLES if 'continue_run' in code]
    names: dict[str, Any] = {'store': example.store, 'librarian': example.librarian, 'run_id': run.run_id}
    compiled = compile(continues, 'README.md', 'exec', flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    finished = eval(compiled, names)
    if inspect.isawaitable(finished):
        await finished
    assert len(names['branch']) == len(names['history'])
    assert names['left'].unresolved == ()
    assert len(await example.store.list_runs()) == 2
