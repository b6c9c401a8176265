"""What a boundary operation is told. Everything here crosses an activity boundary as plain JSON.

The field names are in Temporal histories: add fields with defaults, never rename one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from harness_temporal.history import link, stored_message
from harness_temporal.identity import tool_call_key
from harness_temporal.records import EncodedHistory, EventKind, SnapshotState, ToolEffectRecord, ToolOutcome


class _Facts:
    """Dumps to and loads from a plain mapping."""

    def dump(self) -> dict[str, Any]:
        return asdict(self)  # pyright: ignore[reportArgumentType]  # every subclass is a dataclass

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class RunFacts(_Facts):
    """Which run a boundary belongs to."""

    run_id: str
    registration_id: str
    conversation_id: str | None = None
    parent_run_id: str | None = None
    agent_name: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    attempt: int = 1
    """Above 1 when the tool attempt that this run is nested in is a retry: the run is the same, its trail goes on."""


@dataclass(frozen=True, kw_only=True)
class EventFacts(_Facts):
    """One event. `subject` tells apart the events of one kind in one step."""

    kind: EventKind
    step_index: int
    subject: str = ''
    attempt: int = 1
    tool_call_id: str | None = None
    tool_name: str | None = None
    error: str | None = None
    outcome: str | None = None
    response: str | None = None
    """Key under which the model response of this request is recorded."""


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts(_Facts):
    """One snapshot: the messages on top of the first `base_length` of the history that `base` names, as stored text."""

    save: int
    step_index: int
    state: SnapshotState
    base: str | None
    base_length: int
    bodies: list[str]

    @classmethod
    def of(cls, history: EncodedHistory, *, save: int, step_index: int, state: SnapshotState) -> Self:
        """Tell of a snapshot what `history` holds of it."""
        return cls(
            save=save,
            step_index=step_index,
            state=state,
            base=history.base.hex() if history.base is not None else None,
            base_length=history.base_length,
            bodies=[item.message.body.decode() for item in history.links],
        )

    @property
    def history(self) -> EncodedHistory:
        """The history as the store takes it."""
        base = bytes.fromhex(self.base) if self.base is not None else None
        return link(base, self.base_length, [stored_message(body.encode()) for body in self.bodies])


@dataclass(frozen=True, kw_only=True)
class ToolCallFacts(_Facts):
    """One tool call. `call_key` is set where the arguments are at hand, which may be on the other side."""

    tool_call_id: str
    tool_name: str
    step_index: int
    occurrence: int = 0
    call_key: str = ''
    retryable: bool = False
    """Declared with `recovery_retryable`."""
    announced: bool = False
    """Its events are written by operations of their own, and its ledger entry before the attempt (dedicated)."""

    def keyed(self, run: RunFacts, arguments: Mapping[str, object]) -> ToolCallFacts:
        """Return the same call with its key."""
        key = tool_call_key(
            run_id=run.run_id,
            step_index=self.step_index,
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            arguments=arguments,
            occurrence=self.occurrence,
        )
        return replace(self, call_key=key)

    def effect(
        self, run: RunFacts, *, holder: str, attempts: int = 1, started_at: str = '1970-01-01T00:00:00+00:00'
    ) -> ToolEffectRecord:
        """Return the ledger entry of a start that the store has (whose `started_at` stays as the store has it)."""
        return ToolEffectRecord(
            run_id=run.run_id,
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            call_key=self.call_key,
            step_index=self.step_index,
            status='started',
            started_at=datetime.fromisoformat(started_at),
            attempts=attempts,
            holder=holder,
        )


@dataclass(frozen=True, kw_only=True)
class EndedToolCall(_Facts):
    """A tool call that ran in workflow code, to be recorded with the next boundary that leaves it."""

    call: dict[str, Any]
    outcome: ToolOutcome
    value: str | None = None
    error: str | None = None
    idempotency_key: str | None = None
    effect_summary: str | None = None


@dataclass(frozen=True, kw_only=True)
class ContinuedRun(_Facts):
    """What a run has behind it that goes on in another workflow run (continue-as-new)."""

    run: dict[str, Any]
    """The run's `RunFacts`: it stays the same run."""
    last_step: int
    requests: int
    saves: int
    saved_length: int
    ended: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """`EndedToolCall`s that no boundary has recorded yet."""


@dataclass(frozen=True, kw_only=True)
class ModelRequestFacts(_Facts):
    """One model request, and what rides on it."""

    step_index: int
    subject: str
    save: int | None = None
    """Number of the snapshot to save before the request, if one is due."""
    snapshot: dict[str, Any] | None = None
    """That snapshot, where it is not simply the request's own messages."""
    frontier_save: int | None = None
    """Number of the snapshot to save after the response, before its tools run."""
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """`EndedToolCall`s to record first."""
