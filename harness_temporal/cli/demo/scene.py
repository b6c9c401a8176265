"""What the demo shows: a pure fold of the store's events and of the director's kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from harness_temporal.records import StepEvent
from harness_temporal.step_persistence.operations import ATTEMPT_METADATA_KEY, OUTCOME_METADATA_KEY

StepStatus = Literal['running', 'done', 'failed', 'killed', 'unknown']


@dataclass
class Kill:
    """A SIGKILL to a worker in the middle of a tool."""

    tool: str
    worker: str
    at: datetime
    recovery_s: float | None = None
    """Seconds until the store's next event; `None` until it comes."""


@dataclass
class Step:
    """One attempt at a model request or tool call."""

    index: int
    what: str
    attempt: int
    at: datetime
    status: StepStatus = 'running'
    seconds: float | None = None


@dataclass
class Scene:
    """Everything that is known so far."""

    now: str | None = 'Starting a Temporal server.'
    """What is being done; `None` at the end."""
    ui: str | None = None
    events: list[StepEvent] = field(default_factory=list[StepEvent])
    kills: list[Kill] = field(default_factory=list[Kill])

    def story(self) -> list[Step | Kill]:
        """Return what happened, in order of time."""
        story: list[Step | Kill] = [*steps(self.events, self.kills), *self.kills]
        return sorted(story, key=lambda item: item.at)


def steps(events: Sequence[StepEvent], kills: Sequence[Kill]) -> list[Step]:
    """Pair the starts and ends of model requests and tool calls, and see which of them a kill hit."""
    found: dict[tuple[str, int], Step] = {}
    for event in events:
        if event.kind.startswith('run_'):
            continue
        attempt = int(event.metadata.get(ATTEMPT_METADATA_KEY, 1))
        key = (event.tool_call_id or f'model-{event.step_index}', attempt)
        if event.kind.endswith('_started'):
            found[key] = Step(event.step_index, event.tool_name or 'model request', attempt, event.timestamp)
        elif (step := found.get(key)) is not None:
            unknown = event.metadata.get(OUTCOME_METADATA_KEY) == 'unknown'
            step.status = 'unknown' if unknown else 'done' if event.kind.endswith('_completed') else 'failed'
            step.seconds = (event.timestamp - step.at).total_seconds()
    for step in found.values():
        if step.status == 'running' and any(kill.at > step.at for kill in kills):
            step.status = 'killed'
    return list(found.values())
