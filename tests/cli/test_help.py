from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from harness_temporal.cli.app import app
from tests.cli.conftest import cli
from tests.cli.processes import REPOSITORY, run


def commands(group: object, name: str = '') -> Iterator[tuple[str, object]]:
    members: dict[str, object] | None = getattr(group, 'commands', None)
    if members is None:
        yield name.strip(), group
    for member, command in (members or {}).items():
        yield from commands(command, f'{name} {member}')


COMMANDS = dict(commands(get_command(app)))


def test_commands_are_these() -> None:
    assert {*COMMANDS} >= {
        'demo',
        'dev',
        'worker',
        'run',
        'resume',
        'fork',
        'doctor',
        'approve',
        'deny',
        *(f'threads {name}' for name in ('open', 'send', 'show', 'list', 'cancel', 'rename', 'close', 'answer')),
        'codec-server',
        'import',
        *(f'runs {name}' for name in ('list', 'show', 'tree', 'tail', 'diff')),
        *(f'effects {name}' for name in ('list', 'resolve')),
        *(f'state {name}' for name in ('export', 'import')),
        *(f'store {name}' for name in ('migrate', 'check', 'gc', 'import')),
    }


@pytest.mark.parametrize('name', sorted(COMMANDS))
def test_every_command_speaks_json_and_says_what_it_is_for(name: str) -> None:
    command = COMMANDS[name]
    assert '--json' in [option for parameter in command.params for option in parameter.opts]  # pyright: ignore
    done = cli(*name.split(), '--help')
    assert done.status == 0
    assert '--json' in done.stdout


@pytest.mark.parametrize('arguments', [['--help'], ['runs', 'list', '--help'], ['run', '--help']])
def test_help_imports_neither_temporal_nor_agents(arguments: list[str]) -> None:
    code = (
        'import sys\nfrom harness_temporal.cli.app import app\n'
        f'app({arguments!r}, standalone_mode=False)\n'
        "print(*sorted({'temporalio', 'pydantic_ai', 'pydantic_settings'} & sys.modules.keys()), 'end')"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == 'end'


def test_looking_into_a_store_does_not_import_temporal(tmp_path: Path) -> None:
    code = (
        'import sys\nfrom harness_temporal.cli.app import app\n'
        f"app(['runs', 'list', '--store', 'file:{tmp_path}'], standalone_mode=False)\n"
        "print('temporalio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ['No run matches.', 'False']


def test_shells_complete_commands(tmp_path: Path) -> None:
    done = run(
        folder=tmp_path,
        variables={
            '_HARNESS_TEMPORAL_COMPLETE': 'complete_bash',
            'COMP_WORDS': 'harness-temporal effects re',
            'COMP_CWORD': '2',
        },
    )
    assert done.stdout.split() == ['resolve']


def test_a_process_ends_with_the_status_and_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / 'runs').mkdir()
    done = run('runs', 'show', 'nothing', '--store', 'file:runs', folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr.startswith("error: The store has no run 'nothing'.")
    assert 'Traceback' not in done.stderr
