"""Processes that end with the demo."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from harness_temporal.cli.demo.errors import DemoError

_LOG_LINES = 15


class ChildProcess:
    """A running process whose output goes to a file. Leaving its context kills it."""

    def __init__(self, name: str, command: Sequence[str | Path], *, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open('wb') as output:
            # A session of its own: a Ctrl-C in the terminal is the director's to handle.
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        assert self._process.stdin is not None
        self._input = self._process.stdin

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            DemoError: It ended without being told to; the message has the end of its output.
        """
        status = self._process.poll()
        if status is not None:
            said = '\n'.join(self._log.read_text(errors='replace').splitlines()[-_LOG_LINES:])
            raise DemoError(f'The {self.name} ended unexpectedly with status {status}. Its last words:\n{said}')

    def tell(self, line: str) -> None:
        """Write a line to its standard input. If it ended, `check` is the one to say so."""
        with suppress(BrokenPipeError):
            self._input.write(f'{line}\n'.encode())

    def kill(self) -> None:
        """End it with SIGKILL, so that it has no say in it."""
        self._process.kill()
        self._process.wait()
        self._input.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
