"""The one rule for writes to the effect ledger. Pure; every store applies it inside its transaction."""

from __future__ import annotations

from dataclasses import replace

from harness_temporal.errors import ToolEffectConflictError
from harness_temporal.records import ToolEffectRecord


def advance(current: ToolEffectRecord | None, new: ToolEffectRecord) -> ToolEffectRecord | None:
    """Return the entry to store in place of `current`, or `None` if `new` changes nothing.

    An entry only goes forward:

    - An absent entry takes anything.
    - The holder of a start may end it, and may add annotations to it.
    - A start with the next attempt number takes over an entry that is not completed.
    - A write that the entry already reflects (a retry, or an older write of the same holder) changes nothing.

    Raises:
        ToolEffectConflictError: `new` would go back, or belongs to an attempt that was replaced.
    """
    if current is None:
        return new
    same_attempt = (new.attempts, new.holder) == (current.attempts, current.holder)
    if same_attempt and current.status == 'started':
        merged = _with_annotations(new, current)
        return merged if merged != current else None
    if same_attempt and new.status in ('started', current.status):
        return None
    if new.status == 'started' and new.attempts == current.attempts + 1 and current.status != 'completed':
        return _with_annotations(new, current)
    raise ToolEffectConflictError(current)


def _with_annotations(new: ToolEffectRecord, current: ToolEffectRecord) -> ToolEffectRecord:
    """Keep what a tool noted about its effect: a start or an end that says nothing of it does not erase it."""
    return replace(
        new,
        idempotency_key=new.idempotency_key if new.idempotency_key is not None else current.idempotency_key,
        effect_summary=new.effect_summary if new.effect_summary is not None else current.effect_summary,
        started_at=current.started_at if new.attempts == current.attempts else new.started_at,
        seq=current.seq,
    )
