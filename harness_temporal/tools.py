"""Declare tools whose repetition is acceptable (state-and-resume seed, "Declare Retryable Tools at Their Source")."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from pydantic_ai.tools import Tool, ToolDefinition

from harness_temporal.errors import ConfigurationError

RECOVERY_RETRY_SAFE_METADATA_KEY = 'harness_temporal.recovery_retry_safe'
"""Tool metadata key of the declaration. Only the boolean `True` declares; it is kept in Temporal histories."""

DepsT = TypeVar('DepsT')


@overload
def recovery_retryable(tool: Tool[DepsT], /) -> Tool[DepsT]: ...


@overload
def recovery_retryable(tool: Callable[..., Any], /) -> Tool[Any]: ...


def recovery_retryable(tool: Tool[Any] | Callable[..., Any], /) -> Tool[Any]:
    """Declare that running a tool again is acceptable although an earlier run's outcome is unknown.

    Use it as a decorator of a function, or around a bound method or an existing `Tool`. The result is a native `Tool`
    around the same function; an existing `Tool` is copied with its settings and other metadata, and left as it is.
    A method must be wrapped when it is bound (`recovery_retryable(self.lookup)`), not in the class body.

    Raises:
        ConfigurationError: The value is neither a function nor a `Tool`.
    """
    if isinstance(tool, Tool):
        declared: Tool[Any] = copy.copy(cast(Tool[Any], tool))
    elif callable(tool):
        declared = Tool[Any](tool)
    else:
        raise ConfigurationError(f'`recovery_retryable` takes a function or a `Tool`, got {type(tool).__name__}.')
    declared.metadata = {**(declared.metadata or {}), RECOVERY_RETRY_SAFE_METADATA_KEY: True}
    return declared


def is_recovery_retryable(tool_def: ToolDefinition | None) -> bool:
    """Whether a freshly prepared tool definition declares that the tool may run again."""
    metadata = tool_def.metadata if tool_def is not None else None
    return metadata is not None and metadata.get(RECOVERY_RETRY_SAFE_METADATA_KEY) is True
