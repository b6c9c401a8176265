"""`harness-temporal dev`, from nothing, in a terminal."""

from __future__ import annotations

import asyncio
import os
import re
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.client import Client

from harness_temporal.temporal.dev_server import free_port
from harness_temporal.temporal.visibility import attributes
from tests.cli.processes import run
from tests.cli.terminal import Terminal

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(170)]

AGENT = """
from pydantic_ai import Agent
from harness_temporal import HarnessDurability, StepPersistence

agent = Agent('test', name='{name}', capabilities=[StepPersistence(), HarnessDurability()])
"""


def ports() -> list[str]:
    return ['--port', str(free_port()), '--ui-port', str(free_port())]


def processes_of(folder: Path) -> list[str]:
    """Return the processes that work in a folder, but for this one."""
    found: list[str] = []
    for process in Path('/proc').glob('[0-9]*'):
        # Others come and go meanwhile, and are not ours to look into.
        with suppress(OSError):
            if process.name != str(os.getpid()) and (process / 'cwd').readlink() == folder:
                found.append(process.name)
    return found


async def status_of(address: str, workflow_id: str) -> str | None:
    client = await Client.connect(address)
    description = await client.get_workflow_handle(workflow_id).describe()
    return description.typed_search_attributes.get(attributes.STATUS)


def test_a_new_user_talks_to_an_agent_and_approves_from_a_second_terminal(tmp_path: Path) -> None:
    with Terminal('dev', *ports(), folder=tmp_path) as terminal:
        ui = terminal.wait_for(r'Temporal UI: +(http://\S+)')[1]
        terminal.wait_for('Stop with Ctrl-C')
        hint = terminal.wait_for(r"harness-temporal run (librarian) 'Hello' (--address) (\S+)")

        def typed(*arguments: str) -> str:
            done = run(*arguments, hint[2], hint[3], folder=tmp_path)
            assert done.returncode == 0, done.stderr
            return done.stdout

        with urllib.request.urlopen(ui, timeout=10) as page:
            assert page.status == 200
        assert typed('run', hint[1], 'look up Emma') == 'Emma is on shelf 7.\n'
        thread = typed('threads', 'open', hint[1]).strip()
        assert typed('threads', 'send', thread, 'look up Persuasion') == 'Persuasion is on shelf 7.\n'
        assert re.search(r'lend +approval +{"title":"Emma"}', typed('threads', 'send', thread, 'lend Emma'))
        assert typed('approve', thread, '--all') == 'Emma is lent.\n'
        assert asyncio.run(status_of(hint[3], f'thread-{thread}')) == 'idle', 'it is found in the UI'
        assert len(processes_of(tmp_path)) >= 3, 'dev, the server and the worker'
        terminal.press_control_c()
        assert terminal.wait() == 0
    assert terminal.shown.rstrip().endswith('Stopped. What it did is kept in .harness.')
    assert 'Traceback' not in terminal.shown
    assert processes_of(tmp_path) == []
    assert 'librarian  completed' in run('runs', 'list', folder=tmp_path).stdout
    assert (tmp_path / '.harness').stat().st_mode & 0o777 == 0o700


def test_worker_is_started_again_when_its_source_changes(tmp_path: Path) -> None:
    source = tmp_path / 'my_agents.py'
    source.write_text(AGENT.format(name='first'))
    # Naming a workflow that each worker runs anyway changes nothing.
    workflow = ('--workflow', 'workflows.thread:ThreadWorkflow')
    with Terminal('dev', 'my_agents', *workflow, *ports(), folder=tmp_path) as terminal:
        terminal.wait_for('Agents: +first')
        source.write_text('agent = \n')
        terminal.wait_for('my_agents.py changed; the worker starts again')
        terminal.wait_for("'my_agents' cannot be loaded: SyntaxError")
        terminal.wait_for('The worker ended with status 1. It starts again when a file changes.')
        source.write_text(AGENT.format(name='second'))
        terminal.wait_for('Agents: +second')
        terminal.press_control_c()
        assert terminal.wait() == 0
