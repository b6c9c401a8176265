"""What a tool call gave, as bytes that any host can read back.

The form is Pydantic AI's own record of a tool call (`durable_exec.CallToolResult`): a tagged value, with control flow
(`ModelRetry`, `ApprovalRequired`, …) carried as data. Its tags are compatibility data there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result  # there is no public way to raise a signal
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_core import PydanticSerializationError

from harness_temporal.records import ToolOutcome
from harness_temporal.step_persistence.carrying import Carried, is_carrier, pack, unpack

_OUTCOMES: dict[str, ToolOutcome] = {
    'tool_return': 'returned',
    'tool_content_result': 'returned',
    'model_retry': 'retry',
    'validation_error': 'retry',
    'approval_required': 'approval_required',
    'call_deferred': 'deferred',
    'tool_failed': 'failed',
    'run_cancelled': 'failed',
}


@dataclass(frozen=True)
class Ended:
    """How a tool call ended."""

    outcome: ToolOutcome
    value: bytes | None = None
    error: str | None = None


@cache
def _adapter() -> TypeAdapter[Any]:
    # Built on first use: a schema of every content type takes a moment.
    return TypeAdapter(CallToolResult)


def prepare() -> None:
    """Build the schema of results now, so that workflow code finds it built."""
    _adapter()


def ended_with_result(result: Any) -> Ended:
    """Describe a recorded tool call result, and of a carrier what it carries.

    Raises:
        PydanticSerializationError: The value has no JSON form.
    """
    carried = _carried_by(result)
    told = _fields(result) if carried is None or carried.signal is None else carried.signal
    message = told.get('message')
    return Ended(_OUTCOMES[told['kind']], _adapter().dump_json(result), message if isinstance(message, str) else None)


def with_state_writes(result: Any, writes: Sequence[Mapping[str, str]]) -> Any:
    """Let a tool call result carry what the tool wrote to capability state (`StateWrite.dump`).

    Without writes the result stays as it is, unless its value looks like a carrier: then it becomes the content of
    one, so that nobody misreads it.
    """
    if _OUTCOMES[result.kind] != 'returned':
        return _carrier(Carried(signal=_fields(result), state_writes=writes)) if writes else result
    if writes or is_carrier(result.result):
        return _carrier(Carried(value=result.result, state_writes=writes))
    return result


def failed_instead(given: Any, message: str) -> Any:
    """Replace a tool call result whose value cannot travel by a failure. What it carries still travels."""
    carried = _carried_by(given)
    return with_state_writes(result('tool_failed', message=message), carried.state_writes if carried else ())


def _fields(result: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], vars(result))


def _carrier(carried: Carried) -> Any:
    # Replaced, not validated: the value is to stay what the tool gave.
    return replace(result('tool_return', result=None), result=pack(carried))


def _carried_by(result: Any) -> Carried | None:
    return unpack(result.result) if result.kind == 'tool_return' and is_carrier(result.result) else None


def give(carried: Carried) -> Any:
    """Give what the tool gave: return its value, or raise its signal, as Pydantic AI does."""
    if carried.signal is None:
        return carried.value
    return unwrap_tool_call_result(_adapter().validate_python(carried.signal))


def load_result(value: bytes) -> Any:
    """Read a recorded tool call result back as the object Pydantic AI's activities return."""
    return _adapter().validate_json(value)


def result(kind: str, **fields: Any) -> Any:
    """Make a tool call result of a kind, as a tool's activity would return it."""
    return _adapter().validate_python({'kind': kind, **fields})


def ended_with_value(value: Any) -> Ended:
    """Describe what a tool returned in this process; a value without a JSON form is not kept."""
    try:
        return ended_with_result(with_state_writes(result('tool_return', result=value), ()))
    except (PydanticSerializationError, ValueError):
        return Ended('returned')


def ended_with_error(error: BaseException) -> Ended:
    """Describe what a tool raised in this process."""
    text = error_text(error)
    match error:
        case ModelRetry() | ToolRetryError():
            return Ended('retry', _adapter().dump_json(result('model_retry', message=str(error))), text)
        case ToolFailed() | ToolFailedError():
            return Ended('failed', _adapter().dump_json(result('tool_failed', message=str(error))), text)
        case SkipToolExecution():
            return ended_with_value(error.result)
        case ApprovalRequired():
            fields = {'metadata': error.metadata}
            return Ended('approval_required', _adapter().dump_json(result('approval_required', **fields)))
        case CallDeferred():
            return Ended('deferred', _adapter().dump_json(result('call_deferred', metadata=error.metadata)))
        case _ if isinstance(error, Exception):
            return Ended('error', error=text)
        case _:
            return Ended('cancelled', error=text)


def state_writes(value: bytes) -> Sequence[Mapping[str, str]]:
    """Return what a recorded call wrote to capability state."""
    carried = _carried_by(load_result(value))
    return carried.state_writes if carried is not None else ()


def replay(value: bytes) -> Any:
    """Give what a recorded call gave: return its value, or raise its signal."""
    recorded = load_result(value)
    carried = _carried_by(recorded)
    try:
        return unwrap_tool_call_result(recorded) if carried is None else give(carried)
    except RunCancelled as error:
        raise ToolFailed(error.message) from error
    except ValidationError as error:
        raise ModelRetry(str(error)) from error


def error_text(error: BaseException) -> str:
    """Name an error in one line, as events and ledger entries keep it."""
    message = str(error)
    return f'{type(error).__name__}: {message}' if message else type(error).__name__
