"""How a run ended (state-and-resume seed, "Continue a Thread", "Structured Suspension")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from typing_extensions import TypeVar

from harness_temporal.errors import RetryHint, RunError
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.json_values import canonical_json

RunStatus = Literal['completed', 'suspended', 'failed', 'cancelled']
OutputT = TypeVar('OutputT', default=Any)


@dataclass(frozen=True)
class RunFailure:
    """Why a run failed, as data: no message of an outside service is in it."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retry_hint: RetryHint = 'none'

    def __post_init__(self) -> None:
        if not self.code or not self.message:
            raise ValueError('A failure needs a code and a message.')
        canonical_json(self.details)


@dataclass(frozen=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """The end of one run of a thread.

    `state` is what the thread goes on from. After a failure or a cancellation it is a candidate only: before using it,
    find out whether a tool took effect without its result being recorded.
    """

    thread_id: str
    run_id: str
    status: RunStatus
    output: OutputT | None = None
    state: HarnessState | None = None
    usage: RunUsage = field(default_factory=RunUsage)
    """What this run used; it starts at zero with every run."""
    error: RunFailure | None = None
    suspend_reason: Literal['deferred'] | None = None
    deferred: DeferredToolRequests | None = None
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    """What a failed run raised, in the process that ran it."""
    first_new_message: int = 0
    """How many messages of `state` are older than this run."""

    def __post_init__(self) -> None:
        suspended = self.status == 'suspended'
        wrong = [
            self.status not in ('completed', 'suspended', 'failed', 'cancelled'),
            self.status in ('completed', 'suspended') and self.state is None,
            self.status != 'completed' and self.output is not None,
            (self.status == 'failed') != (self.error is not None),
            suspended != (self.deferred is not None),
            suspended != (self.suspend_reason is not None),
            self.state is not None and self.state.thread_id != self.thread_id,
        ]
        if any(wrong):
            raise ValueError(f'A {self.status!r} run has other fields than these, or the state of another thread.')

    def all_messages(self) -> list[ModelMessage]:
        """Return the thread's messages, those of earlier runs included; none if there is no state."""
        return list(self.state.message_history) if self.state is not None else []

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages that this run added."""
        return self.all_messages()[self.first_new_message :]

    def raise_for_status(self) -> None:
        """Raise unless the run completed.

        Raises:
            RunError: With the failure's code, `run_suspended` or `run_cancelled`.
        """
        if self.error is not None:
            error = self.error
            raise RunError(error.code, error.message, error.details, retry_hint=error.retry_hint) from self.exception
        if self.status != 'completed':
            raise RunError(
                f'run_{self.status}', f'Run {self.run_id!r} was {self.status}; it has no output.', retry_hint='new_run'
            )

    def output_or_raise(self) -> OutputT:
        """Return the output, which may be `None`.

        Raises:
            RunError: The run did not complete.
        """
        self.raise_for_status()
        return self.output  # pyright: ignore[reportReturnType] (a completed run's output is the agent's)
