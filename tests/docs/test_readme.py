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

from harness_temporal.temporal.dev_server import DevServer
from tests.s3_server import Bucket

README = Path(__file__).parents[2] / 'README.md'
EXAMPLES = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)
RUN_IN_A_FUNCTION = ('continue_run', 'StoreMaintenance', 'AgentExecutable')
"""What the examples have that await outside of any function."""


@pytest.fixture
def example(
    temporal_server: DevServer, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The examples that define things, as one module, as a reader would write them down."""
    source = '\n'.join(code for code in EXAMPLES if not any(name in code for name in RUN_IN_A_FUNCTION))
    for shown, ours in {
        "'openai:gpt-5'": 'TestModel()',
        'localhost:7233': temporal_server.address,
        'https://account.r2.cloudflarestorage.com': bucket.server.endpoint,
        'my-bucket': bucket.name,
        "region='auto'": "region='us-east-1'",
    }.items():
        assert shown in source
        source = source.replace(shown, ours)
    if bucket.server.access_key_id is not None:
        monkeypatch.setenv('AWS_ACCESS_KEY_ID', bucket.server.access_key_id)
        monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', bucket.server.secret_access_key or '')
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

    names = await run_example('continue_run', {**vars(example), 'run_id': run.run_id})
    assert len(names['branch']) == len(names['history'])
    assert names['left'].unresolved == ()
    assert len(await example.store.list_runs()) == 2


async def test_a_thread_is_carried_in_a_document(example: Any) -> None:
    names = await run_example('AgentExecutable', vars(example))
    assert names['second'].thread_id == names['first'].thread_id
    assert len(names['second'].state.message_history) > len(names['state'].message_history)


async def test_large_parts_of_the_painter_are_in_its_bucket_and_are_collected(example: Any) -> None:
    await example.painter.run('large ' * 20_000)
    [blob] = [blob async for blob in example.media.blobs()]
    assert blob.size == len('large ' * 20_000)
    await run_example('StoreMaintenance', vars(example))
    assert [blob async for blob in example.media.blobs()] == [blob]
    assert len(await example.runs.list_runs()) == 1
    await example.media.aclose()


async def run_example(name: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the example that has `name`, and return what it defined."""
    [code] = [code for code in EXAMPLES if name in code]
    names = {**names}
    finished = eval(compile(code, 'README.md', 'exec', flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(finished):
        await finished
    return names
