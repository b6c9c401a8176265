"""What the demo found out, as its JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness_temporal.cli.demo.tools import EFFECT_TOOL
from harness_temporal.records import ToolEffectRecord

EXPECTED_KILLS = 2


@dataclass(frozen=True, kw_only=True)
class UnresolvedEffect:
    """A call that the effect ledger leaves to a person."""

    tool: str
    tool_call_id: str
    step: int
    idempotency_key: str | None
    effect: str | None

    @classmethod
    def of(cls, record: ToolEffectRecord) -> UnresolvedEffect:
        """Take what a person needs from the ledger's entry."""
        return cls(
            tool=record.tool_name,
            tool_call_id=record.tool_call_id,
            step=record.step_index,
            idempotency_key=record.idempotency_key,
            effect=record.effect_summary,
        )


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """How the show ended."""

    output: str
    effects: int
    """Payments that the outside world saw."""
    kills: int
    recovery_s: Sequence[float]
    """Seconds from each kill to the next event in the store."""
    unresolved: Sequence[UnresolvedEffect]
    steps: int
    history_events: int
    history_bytes: int
    ui: str

    @property
    def ok(self) -> bool:
        """Whether two workers died, the run ended, and the payment was made once and is accounted for."""
        return (
            self.kills == EXPECTED_KILLS
            and self.effects == 1
            and [effect.tool for effect in self.unresolved] == [EFFECT_TOOL]
        )

    def to_json(self) -> str:
        """Return the object on one line."""
        return json.dumps({'ok': self.ok, **asdict(self)})
