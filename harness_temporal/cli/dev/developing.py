"""Run everything, and tell where it is."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from harness_temporal.cli.dev.sources import Sources
from harness_temporal.cli.dev.worker_process import WorkerProcess
from harness_temporal.cli.opening import DEV_FOLDER, DEV_STORE_URL
from harness_temporal.cli.output import print_json
from harness_temporal.hosting.connection import connect
from harness_temporal.hosting.namespace import set_up
from harness_temporal.hosting.settings import CallerSettings, TemporalSettings
from harness_temporal.hosting.store_settings import StoreSettings
from harness_temporal.temporal.dev_server import DevServer, dev_server
from harness_temporal.temporal.serving import stop_signals

SAMPLE: Final = 'harness_temporal.cli.dev.sample:librarian'
_PAUSE: Final = 0.3
_DEFAULT_PORT: Final = 7233


@dataclass(frozen=True)
class Plan:
    """What to run, and where."""

    agents: tuple[str, ...]
    workflows: tuple[str, ...]
    port: int
    ui_port: int
    task_queue: str | None
    reload: bool


async def develop(plan: Plan, *, as_json: bool) -> None:
    """Run it all until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: A port is taken, the server's executable is missing, or a setting is wrong.
        HarnessError: The server ended.
    """
    caller = CallerSettings.load(task_queue=plan.task_queue)
    agents = plan.agents or caller.agents or (SAMPLE,)
    store = StoreSettings.load().url or DEV_STORE_URL
    with stop_signals() as stop:
        _make_folder()
        with dev_server(
            ui=True,
            log=DEV_FOLDER / 'temporal.log',
            database=DEV_FOLDER / 'temporal.db',
            port=plan.port,
            ui_port=plan.ui_port,
        ) as server:
            await set_up(await connect(TemporalSettings.load(address=server.address)))
            worker = WorkerProcess(agents, plan.workflows, _environment(server, caller, store))
            told = _Told(Console(highlight=False), plan, server, store, as_json=as_json)
            await worker.start()
            try:
                await _watch(worker, server, Sources(Path.cwd()) if plan.reload else None, told, stop)
            finally:
                await worker.stop()
    told.stopped()


async def _watch(
    worker: WorkerProcess, server: DevServer, sources: Sources | None, told: _Told, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        server.check()
        if sources is not None and (changed := await asyncio.to_thread(sources.changed)) is not None:
            told.changed(changed)
            await worker.stop()
            await worker.start()
        if (agents := worker.just_started()) is not None:
            told.ready(agents)
        if (status := worker.just_ended()) is not None:
            told.ended(status, will_start_again=sources is not None)
        try:
            await asyncio.wait_for(stop.wait(), _PAUSE)
        except TimeoutError:
            continue


class _Told:
    """What the terminal is told."""

    def __init__(self, console: Console, plan: Plan, server: DevServer, store: str, *, as_json: bool) -> None:
        self._console, self._plan, self._server, self._store, self._as_json = console, plan, server, store, as_json

    def ready(self, agents: list[str]) -> None:
        """The worker works."""
        if self._as_json:
            where = {'ui': self._server.ui, 'address': self._server.address, 'store': self._store}
            print_json({'ok': True, **where, 'agents': agents})
            return
        address = '' if self._plan.port == _DEFAULT_PORT else f' --address {self._server.address}'
        self._say(f'Temporal UI:  {self._server.ui}')
        self._say(f'Temporal:     {self._server.address}')
        self._say(f'Store:        {self._store}')
        self._say(f'Agents:       {", ".join(agents)}')
        self._say(f"Try, in another terminal here:  harness-temporal run {agents[0]} 'Hello'{address}")
        self._say('Stop with Ctrl-C.')

    def changed(self, file: Path) -> None:
        """A source changed, and the worker starts anew."""
        self._say(f'{file} changed; the worker starts again.')

    def ended(self, status: int, *, will_start_again: bool) -> None:
        """The worker ended by itself."""
        what = 'It starts again when a file changes.' if will_start_again else 'Stop with Ctrl-C.'
        self._say(f'The worker ended with status {status}. {what}')

    def stopped(self) -> None:
        """Everything has ended."""
        self._say(f'Stopped. What it did is kept in {DEV_FOLDER}.')

    def _say(self, line: str) -> None:
        if not self._as_json:
            self._console.print(line, soft_wrap=True, markup=False)


def _environment(server: DevServer, caller: CallerSettings, store: str) -> dict[str, str]:
    """Return the worker's variables: it and the agents are to use what is started here."""
    given = {
        'TEMPORAL_ADDRESS': server.address,
        'TEMPORAL_NAMESPACE': 'default',
        'HARNESS_TASK_QUEUE': caller.task_queue,
        'HARNESS_STORE_URL': store,
    }
    return {**os.environ, **given}


def _make_folder() -> None:
    DEV_FOLDER.mkdir(mode=0o700, exist_ok=True)
    (DEV_FOLDER / '.gitignore').write_text('*\n')
