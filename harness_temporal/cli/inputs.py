"""Read what options and files hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from pydantic_ai.tools import DeferredToolResults
from pydantic_core import from_json

from harness_temporal.errors import ConfigurationError, DeferredResumeError
from harness_temporal.state.deferred_documents import read_results
from harness_temporal.state.envelope import HarnessState

_ANSWERS: Final = '{"results": {"approvals": {"CALL": true}}, "calls": {"CALL": {"kind": "tool_return", "result": …}}}'


def json_option(option: str, text: str) -> Any:
    """Read the JSON that an option was given.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        return from_json(text)
    except ValueError as error:
        raise ConfigurationError(
            f'{option} is no JSON ({error}): a text has quotes, as in {option} \'"done"\'; there are also numbers, '
            'true, false, null, […] and {…}.'
        ) from None


def given_deps(text: str | None) -> Any:
    """Read an agent's dependencies, if there are any.

    Raises:
        ConfigurationError: They are no JSON.
    """
    return json_option('--deps', text) if text is not None else None


def given_state(file: str | None) -> HarnessState | None:
    """Read the state that `--state` names, if it names one. Raises what `read_state` does."""
    return read_state(file) if file is not None else None


def read_state(file: str) -> HarnessState:
    """Read a state from a file, or from standard input (`-`).

    Raises:
        ConfigurationError: The file cannot be read.
        StateEnvelopeError: It holds no state.
    """
    return HarnessState.model_validate_json(_text_of('state', file))


def given_answers(file: str | None) -> DeferredToolResults | None:
    """Read the answers that `--answers` names, if it names any.

    Raises:
        ConfigurationError: The file cannot be read, or holds no answers.
    """
    if file is None:
        return None
    text = _text_of('answers', file)
    try:
        return read_results(from_json(text))
    except (ValueError, DeferredResumeError) as error:
        raise ConfigurationError(f'{_named(file)} holds no answers. {error} They are written as {_ANSWERS}.') from error


def _text_of(what: str, file: str) -> str:
    try:
        return sys.stdin.read() if file == '-' else Path(file).read_text('utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f'The {what} cannot be read from {_named(file)}: {error}') from error


def _named(file: str) -> str:
    return 'standard input' if file == '-' else file
