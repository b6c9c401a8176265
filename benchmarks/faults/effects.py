"""Compares what happened outside with what is recorded, and with what the model was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.faults.agents import COLLEAGUE, EFFECTLESS, UNDECLARED
from benchmarks.faults.findings import Findings
from benchmarks.faults.oracle import Oracle
from benchmarks.faults.plan import PlannedRun
from benchmarks.faults.runs import DECIDED
from benchmarks.faults.script import delegating_call, given
from harness_temporal.records import ToolEffectRecord

_UNKNOWN = ('May have taken effect', 'may have taken effect', 'interrupted before a result')
_FAILED_DELEGATE = f"'{COLLEAGUE}' failed with "


def check_effects(
    planned: PlannedRun,
    oracle: Oracle,
    ledger: Sequence[ToolEffectRecord],
    told: Mapping[str, str] | None,
    found: Findings,
) -> None:
    """Look at each call of a run; `told` is what the model was told of them, if the run came to its end."""
    name, tools = planned.workflow_id, planned.calls
    for call_id, tool in tools.items():
        happened = oracle.effects[name, call_id]
        entries = [entry for entry in ledger if entry.tool_call_id == call_id and entry.outcome != 'approval_required']
        above = delegating_call(call_id)
        # A resumption that runs a declared tool again begins the delegates of that tool anew.
        begins_anew = above is not None and tools[above] not in UNDECLARED
        times = oracle.in_one_workflow[name, call_id] if begins_anew else happened
        if tool in UNDECLARED and times > 1:
            found.double_effects.append(f'{name} {call_id} ({tool}) happened {times} times')
        known = any(entry.status == 'completed' for entry in entries)
        open_ends = [entry for entry in entries if entry.status == 'started' or entry.outcome in ('cancelled', 'error')]
        if happened and not known and not open_ends:
            found.unreported_effects.append(f'{name} {call_id} ({tool}) happened, and the ledger has {entries}')
        if known and not happened and tool not in EFFECTLESS:
            found.inconsistencies.append(f'{name} {call_id} ({tool}) is completed and never happened')
        if told is not None and above is None:
            found.inconsistencies += [
                f'{name} {call_id} ({tool}) {text}' for text in _misunderstood(call_id, told.get(call_id), known=known)
            ]


def _misunderstood(call_id: str, text: str | None, *, known: bool) -> list[str]:
    """Return what is wrong with what the model was told of a call."""
    if text is None:
        return ['has no result']
    if text.startswith(given(call_id)):
        return [] if known else ['gave a result that the ledger has not']
    fits = text.startswith((DECIDED, _FAILED_DELEGATE)) or any(part in text for part in _UNKNOWN)
    return [] if fits else [f'gave {text!r}']
