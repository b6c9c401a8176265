"""What the capability keeps in memory for one run. In a workflow it is rebuilt by replay, so it only counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestContext

from harness_temporal.history import encode_history, encoded_state, since, snapshot_state
from harness_temporal.records import EncodedHistory, SnapshotState
from harness_temporal.step_persistence.facts import (
    ContinuedRun,
    EndedToolCall,
    ModelRequestFacts,
    RunFacts,
    SnapshotFacts,
    ToolCallFacts,
)
from harness_temporal.step_persistence.host import BoundaryCarrier


@dataclass
class RidingRequest:
    """A model request whose activity carries the boundaries."""

    number: int
    dispatches: int = 0
    saved: SnapshotState | None = None


@dataclass
class RunState:
    """One run's counters, and what of its history the store has."""

    run: RunFacts
    carrier: BoundaryCarrier | None = None
    rides: bool = False
    """Whether the activities of this run carry its boundaries."""
    live: list[ModelMessage] = field(default_factory=list[ModelMessage])
    """The graph's own message list. In error hooks the context's list is that of the run's start."""
    last_step: int = 0
    requests: int = 0
    saves: int = 0
    saved_length: int = 0
    saved_digests: list[bytes] | None = None
    """The links of the newest saved history; `None` where they are not known on this side: an activity saved its own
    messages, or they were saved before this workflow was replayed."""
    request: RidingRequest | None = None
    sending: ModelRequestContext | None = None
    """The request as core is about to send it. Not a context variable: a stream is opened in another task."""
    calls: dict[tuple[int, str], ToolCallFacts] = field(default_factory=dict[tuple[int, str], ToolCallFacts])
    """The tool calls whose bodies run now."""
    occurrences: Counter[tuple[int, str]] = field(default_factory=Counter[tuple[int, str]])
    ended: list[EndedToolCall] = field(default_factory=list[EndedToolCall])
    """Tool calls that ran in workflow code and are not recorded yet."""

    @classmethod
    def continued(cls, behind: ContinuedRun) -> RunState:
        """Go on counting where another workflow run left off."""
        return cls(
            RunFacts.load(behind.run),
            last_step=behind.last_step,
            requests=behind.requests,
            saves=behind.saves,
            saved_length=behind.saved_length,
            ended=[EndedToolCall.load(ended) for ended in behind.ended],
        )

    def behind(self) -> ContinuedRun:
        """Return what another workflow run needs to go on counting. Call it between steps."""
        return ContinuedRun(
            run=self.run.dump(),
            last_step=self.last_step,
            requests=self.requests,
            saves=self.saves,
            saved_length=self.saved_length,
            ended=self.pending(),
        )

    def next_request(self) -> int:
        """Number a model request."""
        self.requests += 1
        return self.requests

    def next_occurrence(self, step_index: int, tool_call_id: str) -> int:
        """Number an execution of a call: one that is approved runs a second time in its step."""
        number = self.occurrences[step_index, tool_call_id]
        self.occurrences[step_index, tool_call_id] += 1
        return number

    def is_saved(self, history: EncodedHistory) -> bool:
        """Whether this very history is the one that was saved last."""
        return [item.digest for item in history.links] == self.saved_digests

    def to_save(self, history: EncodedHistory, messages: Sequence[ModelMessage], *, whole: bool) -> SnapshotFacts:
        """Tell what of a history is new since the last save (or, with `whole`, all of it)."""
        common = 0 if whole else self._common_length(history)
        return SnapshotFacts.of(
            since(history, common),
            save=self.saves + 1,
            step_index=self.last_step,
            state=encoded_state(history, messages),
        )

    def saved(self, history: EncodedHistory) -> None:
        """Note that a history was saved."""
        self.saves += 1
        self.saved_length = history.length
        self.saved_digests = [item.digest for item in history.links]

    def riding_request(
        self,
        history: Sequence[ModelMessage],
        messages: Sequence[ModelMessage],
        *,
        step_index: int,
        capture_frontier: bool,
    ) -> ModelRequestFacts:
        """Say what the activity of the running model request has to write, when it is dispatched with `messages`."""
        request = self.request
        assert request is not None
        request.dispatches += 1
        facts = ModelRequestFacts(
            step_index=step_index,
            subject=f'{request.number}.{request.dispatches}',
            pending=self.pending(),
        )
        # A first request has no settled tool cycle behind it; a further dispatch is of the same request.
        if request.dispatches > 1 or not (capture_frontier or step_index > 1):
            return facts
        request.saved, self.last_step = snapshot_state(history), step_index
        if list(history) == list(messages):
            self.saves += 1
            self.saved_length, self.saved_digests = len(history), None
            facts = replace(facts, save=self.saves)
        else:
            # The request is not the history (trimmed, injected into, repaired): only what is new of it crosses.
            encoded = encode_history(history)
            snapshot = self.to_save(encoded, history, whole=self.saved_digests is None)
            self.saved(encoded)
            if self.carrier is not None and self.carrier.is_replaying:
                # Pydantic AI stamps messages with the clock: those that were saved the first time have other links.
                self.saved_digests = None
            facts = replace(facts, save=self.saves, snapshot=snapshot.dump())
        if capture_frontier:
            self.saves += 1
            facts = replace(facts, frontier_save=self.saves)
        return facts

    def pending(self) -> list[dict[str, Any]]:
        """Return the tool calls that the next boundary has to record."""
        return [ended.dump() for ended in self.ended]

    def _common_length(self, history: EncodedHistory) -> int:
        if self.saved_digests is None:
            # Not known on this side. If the history was rewritten since, the store says that it has no such base.
            return min(self.saved_length, len(history.links))
        common = 0
        for item, saved in zip(history.links, self.saved_digests, strict=False):
            if item.digest != saved:
                break
            common += 1
        return common
