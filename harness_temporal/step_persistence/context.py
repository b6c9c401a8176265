"""What code inside a run or inside a tool call can know of it, through context variables.

Context variables do not cross processes. On Temporal the activity interceptor sets them again on the other side.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.tools import RunContext

from harness_temporal.errors import ConfigurationError
from harness_temporal.records import ToolEffectRecord
from harness_temporal.step_persistence.patience import write_patiently
from harness_temporal.stores.protocol import StepStore


@dataclass
class ActiveToolCall:
    """The tool call whose body is running."""

    record: ToolEffectRecord
    in_workflow: bool = False
    """The body runs in workflow code, which writes to no store: notes wait for the call's record."""
    nested_runs: int = 0

    def next_nested_run_id(self) -> str:
        """Return an id for an agent run that the tool starts: the same one in a later attempt of the call."""
        number = self.nested_runs
        self.nested_runs += 1
        return f'{self.record.ledger_key}.{number}'


current_run_id: ContextVar[str | None] = ContextVar('harness_temporal.run_id', default=None)
"""The run that code runs in; the parent of an agent run that it starts."""
current_tool_call: ContextVar[ActiveToolCall | None] = ContextVar('harness_temporal.tool_call', default=None)
_continued: ContextVar[dict[str, Mapping[str, Any]]] = ContextVar('harness_temporal.continued')
_stored: ContextVar[list[int]] = ContextVar('harness_temporal.stored')
boundaries_ride: ContextVar[bool] = ContextVar('harness_temporal.boundaries_ride', default=False)
"""Whether the activity that runs this code is watched by `HarnessPlugin`'s interceptor."""


@contextmanager
def continuing(behind: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Give what a run has behind it (`ContinuedRun`s by capability id) to the one run that is started in this block."""
    token = _continued.set(dict(behind))
    try:
        yield
    finally:
        _continued.reset(token)


def take_continued(capability_id: str | None) -> Mapping[str, Any] | None:
    """Return what the capability counted of the run that is being started, and not to a run that starts within it."""
    return _continued.get({}).pop(capability_id, None) if capability_id is not None else None


@contextmanager
def on_stored_history(length: int) -> Generator[None]:
    """Tell the one run that is started in this block that its store has so many messages of its history."""
    token = _stored.set([length])
    try:
        yield
    finally:
        _stored.reset(token)


def take_stored_length() -> int:
    """Return how many messages the run that is being started need not save, and 0 to a run that starts within it."""
    stored = _stored.get([])
    return stored.pop() if stored else 0


@contextmanager
def tool_call_scope(run_id: str, record: ToolEffectRecord, *, in_workflow: bool = False) -> Generator[ActiveToolCall]:
    """Make a tool call known to its body."""
    active = ActiveToolCall(record, in_workflow)
    run_token, call_token = current_run_id.set(run_id), current_tool_call.set(active)
    try:
        yield active
    finally:
        current_tool_call.reset(call_token)
        current_run_id.reset(run_token)


def _active(ctx: RunContext[Any]) -> ActiveToolCall | None:
    active = current_tool_call.get()
    if active is None or (active.record.tool_call_id, active.record.tool_name) != (ctx.tool_call_id, ctx.tool_name):
        return None
    return active


async def annotate_tool_effect(
    store: StepStore,
    ctx: RunContext[Any],
    *,
    idempotency_key: str | None = None,
    effect_summary: str | None = None,
) -> None:
    """Note, in the ledger entry of the running tool call, what its effect is (step-persistence seed).

    Call it before the effect. Both notes stay through the entry's end. Outside a tool call that `StepPersistence`
    watches it does nothing. It works the same inside a tool's Temporal activity.

    Raises:
        StoreUnavailableError: The store stayed away for 16 seconds. The tool had no effect yet, but this error ends its
            call as any other would.
    """
    active = _active(ctx)
    if active is None:
        return
    active.record = replace(
        active.record,
        idempotency_key=idempotency_key if idempotency_key is not None else active.record.idempotency_key,
        effect_summary=effect_summary if effect_summary is not None else active.record.effect_summary,
    )
    if not active.in_workflow:
        await write_patiently(lambda: store.record_tool_effect(active.record))


def tool_idempotency_key(ctx: RunContext[Any]) -> str:
    """Return a key for the running tool call to hand to an outside service.

    It is the same in every attempt of the call, also after the workflow was reset, and unlike that of any other call.

    Raises:
        ConfigurationError: The tool call is not watched by `StepPersistence`.
    """
    active = _active(ctx)
    if active is None:
        raise ConfigurationError(
            f'Tool {ctx.tool_name!r} has no idempotency key: add `StepPersistence` to the agent, and on Temporal '
            '`HarnessDurability` to the agent and `HarnessPlugin` to the worker.'
        )
    return active.record.ledger_key
