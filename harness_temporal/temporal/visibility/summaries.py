"""One line for each activity of an agent, which the Temporal UI shows beside its name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

LONGEST: Final = 200
"""Characters of a summary. Temporal takes 400 bytes."""
WAITS_FOR: Final = {'approval': 'approval', 'external': 'a result from outside'}
"""What a call waits for, by its kind."""

_NAME: Final = 60
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
    """Summarize a run: who does what. The UI takes it for Markdown."""
    name = _short(agent, _NAME)
    return f'{name}: {code(prompt, LONGEST - len(name) - 4)}' if prompt is not None else f'{name} goes on'


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


def code(text: str, limit: int) -> str:
    """Return so many characters of a text as Markdown's code, in one line.

    As prose the UI would show another text: it takes `*` and `<` away, makes one character of `--` and of `1/2`, bends
    the quotes, and makes links.
    """
    line = _short(text, limit) or ' '
    fence = '`' * (max(map(len, re.findall('`+', line)), default=0) + 1)
    # What the text begins and ends with would be part of the fence.
    before, after = (' ' if end == '`' else '' for end in (line[0], line[-1]))
    return f'{fence}{before}{line}{after}{fence}'


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
