"""The librarian's tools. Two of them wait in their middle, once, for the director's SIGKILL."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_ai
from pydantic_ai import ModelRetry, RunContext, Tool

from harness_temporal.cli.demo.files import DemoFiles
from harness_temporal.step_persistence import annotate_tool_effect, tool_idempotency_key
from harness_temporal.stores import StepStore
from harness_temporal.tools import recovery_retryable

LIBRARY = Path(pydantic_ai.__file__).parent
"""The source that the librarian knows: that of the installed `pydantic_ai`."""
RETRYABLE_TOOL = 'read_source'
EFFECT_TOOL = 'pay_reviewer'
"""The tools that wait to be killed."""
_MOST_HITS = 20


@dataclass(frozen=True)
class LibrarianTools:
    """The tools and what they work on."""

    files: DemoFiles
    store: StepStore

    def all(self) -> list[Tool[Any]]:
        """Return them. Those that only read are declared retryable; paying is not."""
        return [
            recovery_retryable(self.search_source),
            recovery_retryable(self.read_source),
            Tool(self.pay_reviewer),
            recovery_retryable(self.check_ledger),
        ]

    def search_source(self, pattern: str) -> str:
        """Search the library's source for a regular expression; gives lines as `path:line: text`."""
        return '\n'.join(hit for hit, _ in zip(_hits(re.compile(pattern)), range(_MOST_HITS), strict=False))

    async def read_source(self, path: str, first: int, last: int) -> str:
        """Read lines of a file of the library; gives them as `line: text`."""
        file = (LIBRARY / path).resolve()
        if not file.is_relative_to(LIBRARY.resolve()) or not file.is_file():
            raise ModelRetry(f'{path!r} is not a file of the library.')
        lines = (await asyncio.to_thread(file.read_text, 'utf-8')).splitlines()
        await self._wait_to_be_killed(RETRYABLE_TOOL)
        return '\n'.join(f'{number}: {text}' for number, text in enumerate(lines[first - 1 : last], first))

    async def pay_reviewer(self, ctx: RunContext[object], finding: str) -> str:
        """Pay a person to review a finding. Each call charges."""
        key = tool_idempotency_key(ctx)
        await annotate_tool_effect(self.store, ctx, idempotency_key=key, effect_summary=f'review of {finding}')
        await asyncio.to_thread(_append, self.files.ledger, f'{key} review of {finding}')
        await self._wait_to_be_killed(EFFECT_TOOL)
        return 'paid'

    def check_ledger(self) -> str:
        """List the payments that were made."""
        return '\n'.join(self.files.payments())

    async def _wait_to_be_killed(self, tool: str) -> None:
        """Tell the director that the tool is in its middle, and never come back; later attempts pass."""
        try:
            self.files.marker(tool).touch(exist_ok=False)
        except FileExistsError:
            return
        await asyncio.Event().wait()


def _hits(pattern: re.Pattern[str]) -> Iterator[str]:
    for file in sorted(LIBRARY.rglob('*.py')):
        for number, text in enumerate(file.read_text('utf-8').splitlines(), 1):
            if pattern.search(text):
                yield f'{file.relative_to(LIBRARY).as_posix()}:{number}: {text}'


def _append(file: Path, line: str) -> None:
    """Append a line so that it is on disk when this returns: the outside world does not forget a payment."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f'{line}\n'.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
