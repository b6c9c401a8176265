"""One line for each activity of an agent, which the Temporal UI shows beside its name. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

LONGEST: Final = 240
"""Bytes of a summary in JSON. Temporal takes 400, with what it and encryption put around them."""
WAITS_FOR: Final = {'approval': 'approval', 'external': 'a result from outside'}
"""What a call waits for, by its kind."""

_NAME: Final = 60
_VALUE: Final = 40
_ELLIPSIS: Final = '…'
_LONGEST_FENCE: Final = 8
_CONTROLS: Final = dict.fromkeys(range(32), ' ')
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
    return f'{name}: {code(prompt, LONGEST - _size(name) - 2)}' if prompt is not None else f'{name} goes on'


def thread_summary(name: str) -> str:
    """Summarize a thread that people call by a name."""
    return code(name, LONGEST)


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
    """Return a text as Markdown's code, in one line of so many bytes.

    As prose the UI would show another text: it takes `*` and `<` away, makes one character of `--` and of `1/2`, bends
    the quotes, and makes links.
    """
    line = _line(text, limit)
    longest = max(map(len, re.findall('`+', line)), default=0)
    if longest >= _LONGEST_FENCE:
        line, longest = line.replace('`', "'"), 0
    fence = '`' * (longest + 1)
    line = _cut(line, limit - 2 * len(fence) - 2) or ' '
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
    return _cut(_line(text, limit), limit)


def _line(text: str, longest: int) -> str:
    """Return a text in one line, with at most one character more than the longest that fits."""
    # So many words are too long anyway. An argument may have a million, and workflow code is replayed.
    return ' '.join(text.split(maxsplit=longest))[: longest + 1].translate(_CONTROLS)


def _cut(line: str, limit: int) -> str:
    if _size(line) <= limit:
        return line
    ends = list(accumulate(map(_size, line)))
    return line[: bisect_right(ends, limit - _size(_ELLIPSIS))] + _ELLIPSIS


def _size(text: str) -> int:
    return len(text.encode(errors='surrogatepass')) + text.count('"') + text.count('\\')
