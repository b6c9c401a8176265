"""A run whose events are given as they come (state-and-resume seed, "Export While Streaming")."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Generic, Self, cast

from pydantic_ai.messages import AgentStreamEvent

from harness_temporal.errors import RunError, StateError
from harness_temporal.state.context import HarnessContext
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.results import OutputT, RunResult
from harness_temporal.state.running import Run


class RunStream(Generic[OutputT]):
    """One run, to be entered once and iterated by one consumer. Leaving it early ends the run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events: AsyncGenerator[AgentStreamEvent, None] | None = None
        self._iterated = False

    async def __aenter__(self) -> Self:
        if self._events is not None:
            raise RunError('run_stream_reused', 'A stream is one run: it cannot be entered again.')
        self._events = self._run.events()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._events is not None:
            await self._run.abandon(self._events)

    def __aiter__(self) -> AsyncGenerator[AgentStreamEvent, None]:
        if self._events is None:
            raise RunError('run_not_active', 'Enter the stream before iterating it.')
        if self._iterated:
            raise RunError('run_stream_reused', 'A stream has one consumer.')
        self._iterated = True
        return self._events

    async def export_state(self) -> HarnessState:
        """Return the state at the latest safe boundary. Nothing is stored; after the stream, it is the final one.

        Raises:
            StateError: The stream was not entered (`run_not_active`), or the state cannot be kept.
        """
        if self._events is None:
            raise StateError('run_not_active', 'Enter the stream before exporting its state.')
        return self._run.export()

    def cancel(self) -> None:
        """End the run as `cancelled`: what it was doing is stopped, and iteration ends."""
        self._run.cancel()

    @property
    def context(self) -> HarnessContext:
        """The thread of the run and the state of its capabilities.

        Raises:
            RunError: The stream was not entered (`run_not_active`).
        """
        if self._events is None:
            raise RunError('run_not_active', 'Enter the stream before using its context.')
        return self._run.context

    @property
    def pending_deferred_input(self) -> DeferredToolResume | None:
        """The accepted answers that the history has not taken in: what to keep beside an exported state."""
        return self._run.unanswered_resume()

    @property
    def result(self) -> RunResult[OutputT] | None:
        """The result, once the run is over and was closed cleanly."""
        return cast('RunResult[OutputT] | None', self._run.result)

    @property
    def outcome(self) -> RunResult[OutputT] | None:
        """The result even if closing the run failed, as it is in `RunCleanupError.outcome`."""
        return cast('RunResult[OutputT] | None', self._run.outcome)
