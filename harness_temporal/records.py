"""What a store holds, as pure data.

Every timestamp is aware UTC. Order comes from `seq`, which a store assigns per run, never from timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from pydantic_ai.messages import ModelMessage

EventKind = Literal[
    'run_started',
    'run_completed',
    'run_failed',
    'model_request_started',
    'model_request_completed',
    'model_request_failed',
    'tool_call_started',
    'tool_call_completed',
    'tool_call_failed',
]
SnapshotState = Literal['complete', 'interrupted']
"""`complete`: every tool call has its result. `interrupted`: unsettled tool work, or a broken pair."""
ToolEffectStatus = Literal['started', 'completed', 'failed']
ToolOutcome = Literal['returned', 'retry', 'failed', 'approval_required', 'deferred', 'cancelled', 'error']
"""How a tool call ended. Only `error` and `cancelled` carry no recorded value."""


def utc_now() -> datetime:
    """Read the clock. Only boundary operations may call it: they run where the value is journaled."""
    return datetime.now(UTC)  # noqa: TID251


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Return a time as microseconds since 1970, exactly: for databases whose own times are coarser, or none."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    """Return the time that `to_microseconds` made a number of, in UTC."""
    return _EPOCH + count * _MICROSECOND


def _utc(owner: str, name: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f'`{owner}.{name}` needs a time zone; got the naive {value!r}.')
    return value.astimezone(UTC)


def _no_metadata() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One `Agent.run` call and where it stands in a conversation and among other runs."""

    run_id: str
    conversation_id: str | None = None
    parent_run_id: str | None = None
    """The run whose tool started this one: a label for grouping, not a dependency."""
    agent_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=_no_metadata)
    started_at: datetime = field(default_factory=utc_now)
    registration_id: str | None = None
    """Tells a retried registration from another run that reuses the id. `None` never equals another registration."""

    def __post_init__(self) -> None:
        object.__setattr__(self, 'started_at', _utc('RunRecord', 'started_at', self.started_at))
        object.__setattr__(self, 'metadata', dict(self.metadata))


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """One boundary of a run."""

    run_id: str
    kind: EventKind
    step_index: int
    timestamp: datetime = field(default_factory=utc_now)
    conversation_id: str | None = None
    parent_run_id: str | None = None
    agent_name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    error: str | None = None
    metadata: Mapping[str, str] = field(default_factory=_no_metadata)
    idempotency_key: str | None = None
    """A second event of the run with the same key is dropped; without a key every event is appended."""
    seq: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'timestamp', _utc('StepEvent', 'timestamp', self.timestamp))
        object.__setattr__(self, 'metadata', dict(self.metadata))


@dataclass(frozen=True, kw_only=True)
class ContinuableSnapshot:
    """A run's message history at one boundary, ready for `Agent.run(message_history=...)`."""

    run_id: str
    step_index: int
    messages: list[ModelMessage]
    conversation_id: str | None = None
    parent_run_id: str | None = None
    agent_name: str | None = None
    timestamp: datetime = field(default_factory=utc_now)
    state: SnapshotState = 'complete'
    idempotency_key: str | None = None
    seq: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'timestamp', _utc('ContinuableSnapshot', 'timestamp', self.timestamp))


@dataclass(frozen=True, kw_only=True)
class ToolEffectRecord:
    """The ledger's entry for one tool call of one run.

    A `started` entry that nobody ends means that the effect may or may not have happened.
    """

    tool_call_id: str
    tool_name: str
    run_id: str
    status: ToolEffectStatus
    started_at: datetime = field(default_factory=utc_now)
    ended_at: datetime | None = None
    idempotency_key: str | None = None
    """The tool's own key for the outside service, as `annotate_tool_effect` recorded it."""
    effect_summary: str | None = None
    call_key: str | None = None
    """Tells this call from another with the same `tool_call_id`. `None`: the `tool_call_id` identifies it."""
    step_index: int = 0
    attempts: int = 1
    """How many times the tool's body was started. 0: announced, not started yet."""
    holder: str = ''
    """The attempt that wrote the latest start; only it may end it."""
    outcome: ToolOutcome | None = None
    value: bytes | None = None
    """What the call gave, as the host that ran it encoded it."""
    error: str | None = None
    seq: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'started_at', _utc('ToolEffectRecord', 'started_at', self.started_at))
        if self.ended_at is not None:
            object.__setattr__(self, 'ended_at', _utc('ToolEffectRecord', 'ended_at', self.ended_at))

    @property
    def ledger_key(self) -> str:
        """The entry's identity within its run."""
        return self.call_key if self.call_key is not None else f'id-{self.tool_call_id}'


@dataclass(frozen=True, kw_only=True)
class ModelResponseRecord:
    """The latest recorded model response of a run, kept so that a retried request is not paid for twice."""

    run_id: str
    key: str
    body: bytes


@dataclass(frozen=True)
class StoredMessage:
    """One message in its stored form. Its identity is the SHA-256 of the body."""

    digest: bytes
    body: bytes


@dataclass(frozen=True)
class HistoryLink:
    """One message on top of a history: the history's identity is the digest of its last link.

    Equal prefixes of two histories are the same links, so a fork or a further step stores only what is new.
    """

    digest: bytes
    parent: bytes | None
    message: StoredMessage
    length: int
    """How many messages the history up to this link has."""


@dataclass(frozen=True)
class EncodedHistory:
    """A history as links, from `base` (which the store must hold already) or, without one, from the start."""

    base: bytes | None
    base_length: int
    links: tuple[HistoryLink, ...]

    @property
    def head(self) -> bytes | None:
        """The identity of the whole history; `None` for an empty one."""
        return self.links[-1].digest if self.links else self.base

    @property
    def length(self) -> int:
        """How many messages the history has."""
        return self.base_length + len(self.links)


@dataclass(frozen=True, kw_only=True)
class EncodedSnapshot:
    """A snapshot whose messages are encoded, or only those that extend a history the store holds."""

    snapshot: ContinuableSnapshot
    """Everything but the messages, which are empty here."""
    history: EncodedHistory


Record: TypeAlias = (
    RunRecord | StepEvent | ContinuableSnapshot | EncodedSnapshot | ToolEffectRecord | ModelResponseRecord
)
Batch: TypeAlias = Sequence[Record]
"""All records of one moment. A store writes the whole batch or nothing of it."""
