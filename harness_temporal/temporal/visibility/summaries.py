"""One line for each activity of an agent, which the Temporal UI shows beside its name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

LONGEST: Final = 200
"""Characters of a summary. Temporal takes 400 bytes."""
WAITS_FOR: Final = {'approval': 'approval', 'external': 'a result from outside'}
"""What a call waits for, by its kind."""

_VALUE: Final = 40
_CUT: Final = '…'
_OPERATIONS: Final = {
    'start_run': 'record that the run begins',
    'append_event': 'record what happened',
    'save_snapshot': 'save a snapshot',
    'start_tool_effect': 'record that a tool call begins',
    'finish_tool_effect': 'record how a tool call ended',
    'end_run': 'record how the run ended',
}
"""What `StepPersistence` does in activities of its own."""


def run_summary(agent: str, prompt: str | None) -> str:
    """Summarize a run: who does what."""
    return _short(f'{agent}: {prompt}' if prompt is not None else f'{agent} goes on', LONGEST)


def model_summary(step: int) -> str:
    """Summarize a model request."""
    return f'step {step}: ask the model'


def tool_summary(step: int, call: str) -> str:
    """Summarize a tool call: step, tool, short arguments (`call_text`)."""
    return _short(f'step {step}: {call}', LONGEST)


def operation_summary(activity: str) -> str | None:
    """Summarize an activity in which `StepPersistence` writes; `None` for another one."""
    _, ours, operation = activity.rpartition('__capability__step_persistence__')
    return _OPERATIONS.get(operation) if ours else None


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """Write a call as a person would: `pay(cents=500, to="Ada")`."""
    return f'{name}({", ".join(f"{key}={_value(value)}" for key, value in arguments.items())})'


def _value(value: object) -> str:
    try:
        text = to_json(value).decode()
    except (PydanticSerializationError, ValueError):
        text = repr(value)
    return _short(text, _VALUE)


def _short(text: str, limit: int) -> str:
    # So many words are too long anyway. An argument may have a million, and workflow code is replayed.
    line = ' '.join(text.split(maxsplit=limit))
    return line if len(line) <= limit else line[: limit - 1] + _CUT
