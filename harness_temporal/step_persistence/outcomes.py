"""What a tool call gave, as bytes that any host can read back.

The form is Pydantic AI's own record of a tool call (`durable_exec.CallToolResult`): a tagged value, with control flow
(`ModelRetry`, `ApprovalRequired`, …) carried as data. Its tags are compatibility data there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_core import PydanticSerializationError, from_json

from harness_temporal.records import ToolOutcome

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
    # Built on first use: a schema of every content type takes a moment, and workflow code never needs it.
    return TypeAdapter(CallToolResult)


def ended_with_result(result: Any) -> Ended:
    """Describe a recorded tool call result.

    Raises:
        PydanticSerializationError: The value has no JSON form.
    """
    message = getattr(result, 'message', None)
    return Ended(_OUTCOMES[result.kind], _adapter().dump_json(result), message if isinstance(message, str) else None)


def load_result(value: bytes) -> Any:
    """Read a recorded tool call result back as the object Pydantic AI's activities return."""
    return _adapter().validate_json(value)


def result(kind: str, **fields: Any) -> Any:
    """Make a tool call result of a kind, as a tool's activity would return it."""
    return _adapter().validate_python({'kind': kind, **fields})


def ended_with_value(value: Any) -> Ended:
    """Describe what a tool returned in this process; a value without a JSON form is not kept."""
    try:
        return Ended('returned', _adapter().dump_json(result('tool_return', result=value)))
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


def replay(value: bytes) -> Any:
    """Give what a recorded call gave: return its value, or raise its signal."""
    recorded = from_json(value)
    match recorded['kind']:
        case 'model_retry':
            raise ModelRetry(recorded['message'])
        case 'tool_failed' | 'run_cancelled':
            raise ToolFailed(recorded['message'])
        case 'approval_required':
            raise ApprovalRequired(metadata=recorded['metadata'])
        case 'call_deferred':
            raise CallDeferred(metadata=recorded['metadata'])
        case _:
            return load_result(value).result


def error_text(error: BaseException) -> str:
    """Name an error in one line, as events and ledger entries keep it."""
    message = str(error)
    return f'{type(error).__name__}: {message}' if message else type(error).__name__
