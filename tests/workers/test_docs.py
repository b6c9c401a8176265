"""What the pages about operation say, against the code."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from harness_temporal import HarnessDurability, StepPersistence
from harness_temporal.encryption import Key
from harness_temporal.encryption.keys import KEYS_VARIABLE
from harness_temporal.hosting.settings import TemporalSettings, WorkerSettings
from harness_temporal.observability import HarnessMetrics
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.observing import SPAN_PREFIX
from harness_temporal.testing.samples import a_run, a_snapshot, asks
from workers.drain import DRAIN_FAILED
from workers.settings import Settings

DOCS = Path(__file__).parents[2] / 'docs'
PRODUCTION = (DOCS / 'run-in-production.md').read_text()
SIZING = (DOCS / 'sizing.md').read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf'```{language}\n(.*?)```', page, re.DOTALL)


@pytest.mark.parametrize('section', [TemporalSettings, WorkerSettings])
def test_every_setting_is_explained(section: type[TemporalSettings | WorkerSettings]) -> None:
    tables = [line for line in PRODUCTION.splitlines() if line.startswith('| `')]
    for name in section.model_fields:
        assert [line for line in tables if f'`{name}`' in line and f'`{section.variable(name)}`' in line], name


def test_every_metric_is_explained() -> None:
    suffixes = {'counter': '_total', 'histogram': ''}
    for metric in HarnessMetrics().registry.collect():
        assert f'`{metric.name}{suffixes[metric.type]}`' in PRODUCTION
    assert f'status {DRAIN_FAILED}' in PRODUCTION
    assert f'`{SPAN_PREFIX}run_id`' in PRODUCTION


def test_the_sample_of_a_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [sample] = blocks(PRODUCTION, 'toml')
    (tmp_path / 'sample.toml').write_text(sample)
    monkeypatch.setenv('HARNESS_CONFIG', str(tmp_path / 'sample.toml'))
    assert Settings.load().worker.agents == ('my_agents:librarian',)


async def test_the_sample_of_a_worker_of_ones_own_runs(
    temporal_server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sample = blocks(PRODUCTION, 'python')
    librarian = Agent(TestModel(), name='librarian', capabilities=[StepPersistence(), HarnessDurability()])
    configured: dict[str, Any] = {}
    monkeypatch.setattr(logging, 'basicConfig', lambda **settings: configured.update(settings))
    names: dict[str, Any] = {'librarian': librarian}
    exec(compile(sample, 'run-in-production.md', 'exec'), names)
    await names['connect'](temporal_server.address)
    assert configured['handlers'] == [names['handler']]


def written_to(folder: Path) -> bytes:
    return b''.join(path.read_bytes() for path in folder.iterdir())


async def test_the_sample_of_a_store_with_keys_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEYS_VARIABLE, Key.generate('k1').dump())
    sample, _ = blocks(PRODUCTION, 'python')
    names: dict[str, Any] = {}
    exec(compile(sample, 'run-in-production.md', 'exec'), names)
    await names['store'].commit([a_run(), a_snapshot([asks('a secret')])])
    await names['store'].aclose()
    assert b'a secret' not in written_to(tmp_path)


def test_the_arithmetic_gives_what_the_page_says() -> None:
    [program] = blocks(SIZING, 'python')
    [said] = blocks(SIZING, 'text')
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, 'sizing.md', 'exec'), {})
    assert printed.getvalue() == said
