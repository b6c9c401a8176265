"""The worker of `harness-temporal dev`: a process of its own, so that a new start takes up new code."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

_STOP_SECONDS: Final = 10.0


class WorkerProcess:
    """A worker that can be started again. Its log goes to this process's standard error."""

    def __init__(self, agents: Sequence[str], workflows: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, '-m', 'harness_temporal.cli', 'worker', '--json', *agents]
        for path in workflows:
            self._command += ['--workflow', path]
        self._environment = environment
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._started: list[str] | None = None

    async def start(self) -> None:
        """Start it. It works a moment later: see `just_started`."""
        # A session of its own: a Ctrl-C in the terminal is for `dev`, which then stops the worker.
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment, stdout=PIPE, start_new_session=True
        )
        self._started = None
        self._reader = asyncio.create_task(self._read(self._process))

    def just_started(self) -> list[str] | None:
        """Return the names of its agents, once after each start, when it works."""
        started, self._started = self._started, None
        return started

    def just_ended(self) -> int | None:
        """Return its status, once, if it ended by itself."""
        if self._process is None or self._process.returncode is None:
            return None
        status, self._process = self._process.returncode, None
        return status

    async def stop(self) -> None:
        """Let it finish what it does, for a while, and end it."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reader is not None:
            await self._reader
            self._reader = None

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            # What an agent prints is not the worker's own line.
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and 'task_queue' in said:
                    self._started = said['agents']
                    continue
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
