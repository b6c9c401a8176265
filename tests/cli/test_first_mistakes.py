"""What a new user gets wrong first. Each mistake gives one line that says what is wrong and what to do about it."""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import HarnessPlugin
from harness_temporal.errors import PluginMissingError
from harness_temporal.temporal.agent_run_workflow import AgentRunWorkflow
from harness_temporal.temporal.dev_server import DevServer
from tests.cli.conftest import Office, cli
from tests.cli.seeding import a_run, committed

DURABLE = 'from pydantic_ai import Agent\nfrom harness_temporal import HarnessDurability, StepPersistence\n'
CLERK = "clerk = Agent('test', name='clerk', capabilities=[StepPersistence(), HarnessDurability()])\n"


def workflow_class(name: str) -> str:
    return (
        f'from temporalio import workflow\n\n@workflow.defn\nclass {name}:\n'
        '    @workflow.run\n    async def run(self) -> None: ...\n'
    )


@dataclass(frozen=True)
class Mistake:
    """What was typed, and what has to be in the answer: what is wrong, and what to do."""

    typed: tuple[str, ...]
    said: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    before: Callable[[], None] = lambda: None


def newer_schema() -> None:
    committed('sqlite:runs.db', [a_run('run-1')])
    with closing(sqlite3.connect('runs.db')) as connection, connection:
        connection.execute("INSERT INTO harness_temporal_schema VALUES ('steps', 99, x'00', 0)")


def no_database() -> None:
    Path('runs.db').write_text('This is a letter, and no database at all. ' * 100)


MISTAKES = {
    'no store is named': Mistake(('runs', 'list'), ('No store is named', '`--store`', 'HARNESS_STORE_URL')),
    'the path of the store is wrong': Mistake(
        ('runs', 'list', '--store', 'sqlite:rusn.db'), ("There is no 'rusn.db'", 'store migrate')
    ),
    'the kind of the store is wrong': Mistake(
        ('runs', 'list', '--store', 'mysql://localhost/app'), ("'mysql' is no kind of store", '`postgresql://…`')
    ),
    'the URL of SQLite is that of another library': Mistake(
        ('runs', 'list', '--store', 'sqlite:///runs.db'), ('Write', '`sqlite:PATH`')
    ),
    'the file of the store is something else': Mistake(
        ('runs', 'list', '--store', 'runs.db'),
        ('runs.db: file is not a database', 'Check that it is the store'),
        before=no_database,
    ),
    'the store is of a newer release': Mistake(
        ('runs', 'list', '--store', 'runs.db'), ('which a newer release made', 'upgrade'), before=newer_schema
    ),
    'the run is not in the store': Mistake(
        ('runs', 'show', 'run-2', '--store', 'runs.db'),
        ("no run 'run-2'", '`harness-temporal runs list`'),
        before=lambda: committed('sqlite:runs.db', [a_run('run-1')]),
    ),
    'the run has no agent': Mistake(
        ('resume', 'run-1', '--store', 'runs.db'),
        ('no agent in its record', '`--agent`'),
        before=lambda: committed('sqlite:runs.db', [a_run('run-1')]),
    ),
    'nobody is at the address': Mistake(
        ('run', 'clerk', 'Hello', '--address', '127.0.0.1:1'), ('127.0.0.1:1', 'TEMPORAL_ADDRESS', 'TEMPORAL_TLS')
    ),
    'the address has no port': Mistake(
        ('run', 'clerk', 'Hello', '--address', 'localhost'), ("--address is 'localhost'", 'give a host and a port')
    ),
    'the address in the environment has no port': Mistake(
        ('run', 'clerk', 'Hello'),
        ("TEMPORAL_ADDRESS is 'localhost'", 'give a host and a port'),
        variables={'TEMPORAL_ADDRESS': 'localhost'},
    ),
    'a setting is misspelt': Mistake(
        ('run', 'clerk', 'Hello'),
        ('`adress` in [temporal]', 'did you mean `address`?'),
        files={'harness.toml': '[temporal]\nadress = "localhost:7233"\n'},
    ),
    'the file of settings is no TOML': Mistake(
        ('runs', 'list'), ('harness.toml is no TOML',), files={'harness.toml': 'store = \n'}
    ),
    'the dependencies are no JSON': Mistake(
        ('run', 'clerk', 'Hello', '--deps', 'floor=3'), ('--deps is no JSON', 'a text has quotes')
    ),
    'the state is in no file': Mistake(
        ('run', 'clerk', 'Hello', '--state', 'state.json'), ('cannot be read from state.json',)
    ),
    'no agent is named': Mistake(('worker',), ('Set HARNESS_AGENTS', '`agents` in [worker]', '`module:attribute`')),
    'the module of the agent is not there': Mistake(
        ('worker', 'my_agnets:clerk'), ("'my_agnets' cannot be loaded: No module named 'my_agnets'",)
    ),
    'the module has no such agent': Mistake(
        ('worker', 'my_agents:clerk'), ("has no attribute 'clerk'",), files={'my_agents.py': ''}
    ),
    'the module has no agent': Mistake(
        ('worker', 'my_agents'), ("'my_agents' has no agent to run", 'top level'), files={'my_agents.py': ''}
    ),
    'what is named is no agent': Mistake(
        ('worker', 'my_agents:clerk'), ('is a int, not a `AbstractAgent`',), files={'my_agents.py': 'clerk = 1'}
    ),
    'the agent is not durable': Mistake(
        ('worker', 'my_agents:clerk'),
        ('has no `HarnessDurability`', "add it to the agent's `capabilities`"),
        files={'my_agents.py': "from pydantic_ai import Agent\nclerk = Agent('test', name='clerk')\n"},
    ),
    'the agent has no name': Mistake(
        ('worker', 'my_agents:clerk'),
        ('cannot be loaded', 'needs to have a unique `name`', 'my_agents.py:3'),
        files={'my_agents.py': f"{DURABLE}clerk = Agent('test', capabilities=[HarnessDurability()])\n"},
    ),
    'the module does not compile': Mistake(
        ('worker', 'my_agents'),
        ('cannot be loaded: SyntaxError', 'my_agents.py, line 1'),
        files={'my_agents.py': 'clerk = \n'},
    ),
    'a workflow has the name of one of ours': Mistake(
        ('worker', 'my_agents', '--workflow', 'my_agents:Thread'),
        (
            "'my_agents:Thread' is a workflow named 'Thread'",
            'so is `harness_temporal.temporal.threads.workflow.ThreadWorkflow`',
            "`@workflow.defn(name='...')`",
        ),
        files={'my_agents.py': f'{DURABLE}{CLERK}{workflow_class("Thread")}'},
    ),
    'two workflows have one name': Mistake(
        ('worker', 'my_agents', '--workflow', 'my_agents:Ask', '--workflow', 'others:Ask'),
        ("'others:Ask' is a workflow named 'Ask', and so is `my_agents.Ask`",),
        files={'my_agents.py': f'{DURABLE}{CLERK}{workflow_class("Ask")}', 'others.py': workflow_class('Ask')},
    ),
    'what is named is no workflow': Mistake(
        ('worker', 'my_agents', '--workflow', 'my_agents:Agent'),
        ("'my_agents:Agent' is no workflow", '`@workflow.defn`'),
        files={'my_agents.py': f'{DURABLE}{CLERK}'},
    ),
    'the worker is asked for what only the deployed one does': Mistake(
        ('worker', 'my_agents'),
        ('HARNESS_HTTP_ADDRESS is for the worker that is deployed', 'Unset it'),
        variables={'HARNESS_HTTP_ADDRESS': ':8080'},
    ),
    'the payload storage is not there': Mistake(
        ('run', 'clerk', 'Hello'),
        ("'kept' cannot be loaded: No module named 'kept'",),
        variables={'HARNESS_PAYLOADS': 'kept:payloads'},
    ),
}


@pytest.mark.parametrize('name', MISTAKES)
def test_mistake_is_told_with_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    for file, text in mistake.files.items():
        Path(file).write_text(text)
    for variable, value in mistake.variables.items():
        monkeypatch.setenv(variable, value)
    mistake.before()
    check_told(mistake)


AT_WORK = {
    'no worker asks for the work': Mistake(
        ('run', 'clerk', 'Hello', '--task-queue', 'nobodys'),
        ("No worker asks for the work of task queue 'nobodys'", '`harness-temporal worker`', '`--task-queue`'),
    ),
    'the namespace is not there': Mistake(
        ('run', 'clerk', 'Hello', '--namespace', 'nowhere'), ('TEMPORAL_NAMESPACE=nowhere is not there', 'makes it')
    ),
    'the worker has no such agent': Mistake(
        ('run', 'clerc', 'Hello'), ("no agent named 'clerc' (it has: 'clerk')", 'HarnessPlugin(agents=[...])')
    ),
    'the dependencies do not fit': Mistake(
        ('run', 'clerk', 'Hello', '--deps', '{"floor": "third"}'),
        ("dependencies given to agent 'clerk' do not fit", 'floor', 'valid integer'),
    ),
    'the run to branch off is not in the store of the workers': Mistake(
        ('fork', 'run-9', '--agent', 'clerk'), ("Run 'run-9' has no snapshot to continue from", '--include-interrupted')
    ),
}


@pytest.mark.temporal
@pytest.mark.parametrize('name', AT_WORK)
def test_mistake_beside_a_worker_is_told_with_what_to_do(name: str, at_work: Office) -> None:
    check_told(AT_WORK[name])


def check_told(mistake: Mistake) -> None:
    done = cli(*mistake.typed)
    assert (done.status, done.stdout) == (1, '')
    assert done.stderr.startswith('error: ')
    assert 'Traceback' not in done.stderr
    for words in mistake.said:
        assert words in done.stderr
    as_json = cli(*mistake.typed, '--json').json
    assert as_json['ok'] is False
    for words in mistake.said:
        assert words in as_json['error']


@pytest.mark.parametrize(
    ('url', 'driver', 'extra'), [('postgresql://h/d', 'asyncpg', 'postgres'), ('mongodb://h/d', 'pymongo', 'mongo')]
)
def test_a_missing_extra_is_named(url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    for name in [*sys.modules]:
        # What an earlier test imported has its driver already.
        if name.startswith(f'harness_temporal.databases.{extra}'):
            monkeypatch.delitem(sys.modules, name)
    done = cli('runs', 'list', '--store', url)
    assert f"needs {driver}: install 'harness-temporal[{extra}]'" in done.stderr


@pytest.mark.parametrize(
    ('keys', 'said'),
    [
        ('', 'There are no encryption keys in the environment variable HARNESS_PAYLOAD_KEYS'),
        ('k1', 'id:base64'),
        ('k1:c2hvcnQ=', "'k1' has 5 bytes instead of 32"),
    ],
)
def test_a_wrong_key_is_told(keys: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path('kept_by_key.py').write_text(
        'from harness_temporal.temporal.payloads import KeyRing, PayloadStorage\n'
        'payloads = PayloadStorage(None, keys=KeyRing.from_environment())\n'
    )
    monkeypatch.setenv('HARNESS_PAYLOADS', 'kept_by_key:payloads')
    monkeypatch.setenv('HARNESS_PAYLOAD_KEYS', keys)
    told = cli('doctor', '--address', '127.0.0.1:1', '--json').json['checks']['payloads']
    assert told['status'] == 'failed'
    assert said in told['told']


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli('dev', '--port', str(port))
    assert done.status == 1
    assert f'Port {port} of this machine cannot be used' in done.stderr


async def test_a_missing_plugin_is_told(temporal_server: DevServer) -> None:
    client = await Client.connect(temporal_server.address)
    with pytest.raises(PluginMissingError, match=r'Pass `plugins=\[HarnessPlugin\(agents=\[\.\.\.\]\)\]`'):
        Worker(client, task_queue='any', workflows=[AgentRunWorkflow], build_id='1', plugins=[HarnessPlugin()])


def test_two_agents_of_one_name_are_told(at_work: Office) -> None:
    durable = "Agent('test', name='clerk', capabilities=[StepPersistence(), HarnessDurability()])"
    Path('my_agents.py').write_text(f'{DURABLE}one = {durable}\nother = {durable}\n')
    done = cli('worker', 'my_agents')
    assert done.status == 1
    assert "Two agents of this worker are named 'clerk'" in done.stderr
    assert 'Give each' in done.stderr
