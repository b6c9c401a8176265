"""What a run raised, as data."""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded

from harness_temporal.state.results import RunFailure


def describe(error: Exception) -> RunFailure:
    """Describe what a run raised, without the text of it: that can hold what an outside service said."""
    if isinstance(error, UsageLimitExceeded):
        return RunFailure('usage_limit_exceeded', 'The run reached a usage limit.', {}, 'dependency_change')
    details: dict[str, Any] = {'exception_type': type(error).__name__}
    if isinstance(error, ModelHTTPError):
        details['status_code'] = error.status_code
    return RunFailure('agent_run_failed', f'The run raised {type(error).__name__}.', details, 'dependency_change')


def causes_of(error: Exception) -> tuple[BaseException, ...]:
    """Return the errors that were raised together."""
    return cast('ExceptionGroup[Exception]', error).exceptions if isinstance(error, ExceptionGroup) else (error,)
