"""What a command prints: one thing, as JSON or for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic_core import to_jsonable_python
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness_temporal.text import as_storable

_WIDEST: Final = 10_000


@dataclass(frozen=True)
class Output:
    """What a command gives. `ok` decides about its exit status, and is in the JSON."""

    data: Mapping[str, Any]
    shown: RenderableType
    ok: bool = True


def show(output: Output, *, as_json: bool) -> None:
    """Print it on standard output."""
    if as_json:
        print_json({'ok': output.ok, **output.data})
    else:
        console = Console(highlight=False)
        # As wide as it is: ids that are broken in the middle cannot be copied. A terminal breaks lines by itself.
        unbound = console.options.update(max_width=_WIDEST)
        console.width = max(console.width, Measurement.get(console, unbound, output.shown).maximum)
        console.print(output.shown, soft_wrap=True)


def show_error(text: str, *, as_json: bool) -> None:
    """Print what went wrong on standard error, and with JSON on standard output as well."""
    if as_json:
        print_json({'ok': False, 'error': text})
    print(f'error: {as_storable(text)}', file=sys.stderr)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of its own."""
    plain = to_jsonable_python(data, bytes_mode='base64', fallback=str)
    print(json.dumps(plain, ensure_ascii=True), flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Make a table. Nothing in it is cut."""
    made = Table(*columns, box=None, pad_edge=False, header_style='bold')
    for row in rows:
        made.add_row(*(Text(cell(value)) for value in row))
    return made


def cell(value: object) -> str:
    """Return a value as it stands in a table."""
    if value is None:
        return ''
    if isinstance(value, datetime):
        return value.strftime('%Y-%m-%d %H:%M:%S')
    return as_storable(str(value))
