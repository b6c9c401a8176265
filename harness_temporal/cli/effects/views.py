"""Tool effects as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json
from rich.table import Table

from harness_temporal.cli.output import table
from harness_temporal.records import ToolEffectRecord


def effect_data(effect: ToolEffectRecord) -> dict[str, Any]:
    """Return a ledger entry as JSON. `value` is what the host that ran the call recorded."""
    fields = asdict(effect)
    fields['call_key'] = effect.ledger_key
    fields['value'] = _value(effect.value)
    return fields


def effects_table(effects: Sequence[ToolEffectRecord], *, with_run: bool = False) -> Table:
    """Make a table of ledger entries."""
    columns = ('call', 'tool', 'step', 'status', 'outcome', 'attempts', 'started', 'idempotency key', 'effect', 'error')
    rows = [
        (
            effect.tool_call_id or effect.ledger_key,
            effect.tool_name,
            effect.step_index,
            effect.status,
            effect.outcome,
            effect.attempts,
            effect.started_at,
            effect.idempotency_key,
            effect.effect_summary,
            effect.error,
        )
        for effect in effects
    ]
    if with_run:
        rows = [(effect.run_id, *row) for effect, row in zip(effects, rows, strict=True)]
        columns = ('run', *columns)
    return table(columns, rows)


def _value(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return from_json(value)
    except ValueError:
        # A store of another library may have had anything.
        return value
