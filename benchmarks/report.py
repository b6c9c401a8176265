"""What a benchmark prints: tables and bars for a person, and one JSON object as the last line for a program."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

try:
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError:
    Console = Table = None  # type: ignore[assignment,misc]


@dataclass(frozen=True)
class Bar:
    """A bar of the project's, and what was measured against it; `None` where this run did not measure it."""

    name: str
    limit: float
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.value <= self.limit

    def dump(self) -> dict[str, Any]:
        return asdict(self) | {'met': self.met}


def machine(versions: Mapping[str, str]) -> dict[str, Any]:
    """Say what the figures were measured with. `versions` are the workers'."""
    return {'python': platform.python_version(), 'cpus': os.cpu_count(), 'load': os.getloadavg()[0], **versions}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, with rich if it is installed."""
    cells = [['-' if cell is None else str(cell) for cell in row] for row in rows]
    if Table is None:
        widths = [max(len(row[index]) for row in [list(columns), *cells]) for index in range(len(columns))]
        print(f'\n{title}')
        for row in [list(columns), *cells]:
            print('  '.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        return
    drawn = Table(title=title, title_justify='left')
    for index, column in enumerate(columns):
        drawn.add_column(column, justify='left' if index == 0 else 'right')
    for row in cells:
        drawn.add_row(*row)
    # A pipe has no width of its own; rich would fold the table to 80 columns.
    Console(width=None if sys.stdout.isatty() else 160).print(drawn)


def bars(judged: Sequence[Bar]) -> None:
    words = {True: 'met', False: 'MISSED', None: 'not measured'}
    table('bars', ['bar', 'limit', 'value', ''], [[bar.name, bar.limit, bar.value, words[bar.met]] for bar in judged])


def finish(result: Mapping[str, Any], judged: Sequence[Bar], *, as_json: bool) -> None:
    """Print the bars and, when asked to, everything as the last line."""
    bars(judged)
    if as_json:
        ok = not any(bar.met is False for bar in judged)
        print(json.dumps({**result, 'bars': [bar.dump() for bar in judged], 'ok': ok}))
