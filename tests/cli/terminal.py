"""A command in a terminal, as a person sits before it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.processes import COMMAND, environment

_CONTROL_C = b'\x03'
_PATIENCE = 60.0


class Terminal:
    """Runs a command with a pseudo-terminal of its own. What it shows is in `shown`."""

    def __init__(self, *arguments: str, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(TERM='xterm', COLUMNS='200', **(variables or {})),
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
        os.close(inside)
        self.shown = ''

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until something is shown, and return it."""
        deadline = time.monotonic() + _PATIENCE
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, self.shown
            assert self._read(1.0), f'it ended: {self.shown}'
        return found

    def press_control_c(self) -> None:
        os.write(self._screen, _CONTROL_C)

    def wait(self) -> int:
        """Wait for the end, and return the status."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(1.0):
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(10)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._screen], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._screen, 65_536)
        except OSError:
            # Nobody has the other side open any more.
            return False
        self.shown += data.decode(errors='replace')
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            # So that it ends what it started.
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._screen)


def _take_the_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Where the tests run in the background of a shell, they and what they start ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
