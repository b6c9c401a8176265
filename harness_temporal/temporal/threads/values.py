"""What crosses into a thread's workflow and out of it. Names and fields are in histories for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic_ai.usage import RunUsage, UsageLimits
from temporalio.contrib.workflow_streams import WorkflowStreamState

from harness_temporal.state.envelope import HarnessState
from harness_temporal.step_persistence.effects import ToolRecovery
from harness_temporal.temporal.agent_run import AgentRunInput
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.continuation import HistoryBudget

THREAD_WORKFLOW = 'Thread'
"""Name of the workflow type that keeps one thread. It is in histories for ever."""

TurnEnd = Literal['answered', 'failed', 'cancelled']
TurnStatus = Literal['queued', 'running', 'waiting_for_approval', 'answered', 'failed', 'cancelled']
ThreadState = Literal['idle', 'running', 'waiting_for_approval', 'closed']
Wait = Literal['accepted', 'answered']


@dataclass(frozen=True, kw_only=True)
class ApprovalPolicy:
    """What happens while a turn waits for approvals or external results."""

    timeout: timedelta | None = None
    """After it, what nobody answered is denied or failed, and the turn goes on. Without one it waits for ever."""
    remind_every: timedelta | None = None
    """How often `reminder_activity` is called while it waits."""
    reminder_activity: str | None = None
    """Name of an activity of yours that takes an `ApprovalReminder`."""


@dataclass(frozen=True, kw_only=True)
class ThreadOptions:
    """How a thread behaves. It keeps those it was opened with."""

    approvals: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    usage_limits: UsageLimits | None = None
    """Of each agent run. A turn has one run, and a further one each time that it was answered."""
    history_budget: HistoryBudget = field(default_factory=HistoryBudget)
    max_prompt_bytes: int = 256 * 1024
    """How large a message may be, as UTF-8."""
    max_queued: int = 100
    """How many messages may wait for their turn."""


@dataclass(kw_only=True)
class Turn:
    """A message and what became of it."""

    number: int
    """Counted from 1, in the order of acceptance."""
    key: str
    digest: str
    """SHA-256 of the message."""
    prompt: str | None
    """`None` once it has ended."""
    status: TurnStatus = 'queued'
    run_id: str | None = None
    """The newest agent run of the turn, as it is persisted."""
    output: Any = None
    error_type: str | None = None
    error: str | None = None
    usage: RunUsage = field(default_factory=RunUsage)
    cancelled: bool = False
    """Somebody asked to cancel it."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing will change it any more."""
        return self.status in ('answered', 'failed', 'cancelled')


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """One model response of a turn's newest run."""

    number: int
    text: str | None
    """The beginning of what the model said."""
    tools: list[str]
    """The tools that it called."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The calls that a turn waits for, and the answers so far."""

    answers: Any
    """`resume_document` of the requests and the results that were given."""
    since: datetime
    reminded: int = 0


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """A run that failed or was cancelled: what the next one goes on from."""

    snapshot: SnapshotReference
    tool_recovery: ToolRecovery
    capabilities: CarriedState
    """The state of the run's capabilities; without messages."""


@dataclass(frozen=True, kw_only=True)
class CarriedThread:
    """All that a thread takes along into its next workflow run."""

    turns: list[Turn]
    """Those that have not ended, and the last ones that have."""
    last_number: int
    state: CarriedState
    recoveries: list[Recovery]
    usage: RunUsage
    name: str | None
    asked: Asked | None
    answers: Any
    """`resume_document` for the next run."""
    answered_calls: list[str]
    """Calls that were answered last, to tell who answers again."""
    going_on: AgentRunInput | None
    """The run in the middle of which the thread continues as new."""
    steps: list[StepSummary]
    update_ids: list[str]
    """Of updates that were carried out, so that one sent again is not."""
    closing: bool
    stream: WorkflowStreamState
    stream_offset: int
    """Where the events of the newest turn begin."""


@dataclass(frozen=True, kw_only=True)
class ThreadInput:
    """What a thread is opened with."""

    thread_id: str
    agent: str
    """Name of an agent of the worker."""
    deps: Any = None
    """The agent's dependencies as JSON, for every run."""
    name: str | None = None
    options: ThreadOptions = field(default_factory=ThreadOptions)
    state: CarriedState | None = None
    """What the thread goes on from. Its id is the thread's."""
    going_on: CarriedThread | None = None
    """Set by a thread that continues as new."""
    search_attributes: bool = False
    """Whether the namespace has the search attributes of `visibility.attributes`, so that the thread can set them."""

    def beginning(self) -> CarriedThread:
        """Return what the thread begins with in this workflow run.

        Raises:
            StateEnvelopeError: `thread_id` is no id of a thread.
        """
        if self.going_on is not None:
            return self.going_on
        return CarriedThread(
            turns=[],
            last_number=0,
            state=self.state or CarriedState(document=HarnessState.new(thread_id=self.thread_id)),
            recoveries=[],
            usage=RunUsage(),
            name=self.name,
            asked=None,
            answers=None,
            answered_calls=[],
            going_on=None,
            steps=[],
            update_ids=[],
            closing=False,
            stream=WorkflowStreamState(),
            stream_offset=0,
        )


@dataclass(frozen=True, kw_only=True)
class ThreadOutput:
    """What a closed thread leaves."""

    thread_id: str
    name: str | None
    state: CarriedState
    """Another thread may go on with it."""
    usage: RunUsage
    turns: int


@dataclass(frozen=True, kw_only=True)
class SendInput:
    """A message. Sent again with the same key, it is the same turn."""

    prompt: str | None
    """`None` asks after the turn of the key."""
    key: str
    wait: Wait = 'accepted'


@dataclass(frozen=True, kw_only=True)
class ResolveInput:
    """Answers to some or all of the calls that a turn waits for."""

    answers: Any
    """`results_document`."""
    run_id: str | None = None
    """The run that asked, to be sure that these are no answers to earlier calls with the same ids."""
    wait: Wait = 'accepted'


@dataclass(frozen=True, kw_only=True)
class CancelInput:
    """Which turn to cancel; by default the one that is on."""

    turn: int | None = None


@dataclass(frozen=True, kw_only=True)
class RenameInput:
    """A new name."""

    name: str


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call that waits for an approval or an external result."""

    tool_call_id: str
    tool: str
    kind: Literal['approval', 'external']
    arguments: Mapping[str, Any]
    metadata: Mapping[str, Any]
    since: datetime
    deadline: datetime | None
    answered: bool
    """It has its answer, and others have not."""


@dataclass(frozen=True, kw_only=True)
class ApprovalReminder:
    """What a reminder activity is called with."""

    thread_id: str
    name: str | None
    number: int
    """Counted from 1."""
    pending: list[PendingCall]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Where a turn is."""

    turn: int
    key: str
    status: TurnStatus
    output: Any = None
    """The agent's, if it was answered. Only the last answers are kept: an older turn's is in the store."""
    error_type: str | None = None
    error: str | None = None
    run_id: str | None = None
    usage: RunUsage = field(default_factory=RunUsage)
    pending: list[PendingCall] = field(default_factory=list[PendingCall])
    """What it waits for."""
    handed_over: bool = False
    """The thread goes on in another workflow run before it could say more: ask again, with the same key."""


@dataclass(frozen=True, kw_only=True)
class ThreadStatus:
    """Where a thread is."""

    state: ThreadState
    name: str | None
    turn: Reply | None
    """The turn that is on, or the last one."""
    queued: int
    usage: RunUsage
    """Of all turns."""
