"""What the page about the command line says, against the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness_temporal.hosting.store_settings import StoreSettings
from tests.cli.processes import REPOSITORY
from tests.cli.test_help import COMMANDS

PAGE = (REPOSITORY / 'docs' / 'cli.md').read_text()
TABLED = re.findall(r'^\| `([^`]+)`', PAGE, re.MULTILINE)
LINES = [
    line.removeprefix('harness-temporal ')
    for block in re.findall(r'```bash\n(.*?)```', PAGE, re.DOTALL)
    for line in block.splitlines()
]


def command_of(words: list[str]) -> str:
    """Return the command that words begin with."""
    return next(name for name in (' '.join(words[:2]), words[0]) if name in COMMANDS)


def test_every_command_is_explained() -> None:
    explained = {command_of(row.split()) for row in TABLED if row not in StoreSettings.model_fields}
    assert explained | {'import'} == {*COMMANDS}


@pytest.mark.parametrize('line', LINES)
def test_every_example_is_a_command_with_its_options(line: str) -> None:
    words = shlex.split(line)
    command = COMMANDS[command_of(words)]
    known = {option for parameter in command.params for option in parameter.opts}  # pyright: ignore
    assert {word for word in words if word.startswith('-')} <= known


@pytest.mark.parametrize('option', sorted(set(re.findall(r'`(--[a-z-]+)', PAGE))))
def test_every_option_that_is_mentioned_is_one(option: str) -> None:
    options = {
        name
        for command in COMMANDS.values()
        for parameter in command.params  # pyright: ignore
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert option in options | {'--help', '--install-completion'}


@pytest.mark.parametrize('name', StoreSettings.model_fields)
def test_every_setting_is_explained(name: str) -> None:
    assert f'| `{name}` | `{StoreSettings.variable(name)}` |' in PAGE


def test_the_sample_agent_is_one_that_dev_runs() -> None:
    Path('.harness').mkdir()
    [sample] = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
    Path('my_documented_agents.py').write_text(sample)
    from harness_temporal.hosting.agents import load_agents

    [agent] = load_agents(['my_documented_agents'])
    assert agent.name == 'agent'
