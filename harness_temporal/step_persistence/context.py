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

from harness_temporal.context_variables import having
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


@dataclass(frozen=True, kw_only=True)
class Behind:
    """What a run that is being started has behind it, for one capability."""

    continued: Mapping[str, Any] | None = None
    """The `ContinuedRun` of one that began in another workflow run."""
    stored_messages: int = 0
    """How many messages of the history that it is given the capability's store has."""


current_run_id: ContextVar[str | None] = ContextVar('harness_temporal.run_id', default=None)
"""The run that code runs in; the parent of an agent run that it starts."""
current_tool_call: ContextVar[ActiveToolCall | None] = ContextVar('harness_temporal.tool_call', default=None)
_behind: ContextVar[dict[str, Behind]] = ContextVar('harness_temporal.behind')
boundaries_ride: ContextVar[bool] = ContextVar('harness_temporal.boundaries_ride', default=False)
"""Whether the activity that runs this code is watched by `HarnessPlugin`'s interceptor."""


@contextmanager
def continuing(behind: Mapping[str, Behind]) -> Generator[None]:
    """Give what a run has behind it, by capability id, to the one run that is started in this block."""
    with having(_behind, dict(behind)):
        yield


def take_behind(capability_id: str | None) -> Behind:
    """Return what the run that is being started has behind it, and nothing to a run that starts within it."""
    return _behind.get({}).pop(capability_id, Behind()) if capability_id is not None else Behind()


@contextmanager
def tool_call_scope(run_id: str, record: ToolEffectRecord, *, in_workflow: bool = False) -> Generator[ActiveToolCall]:
    """Make a tool call known to its body."""
    active = ActiveToolCall(record, in_workflow)
    with having(current_run_id, run_id), having(current_tool_call, active):
        yield active


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
