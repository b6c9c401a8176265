"""Read what options and files hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from harness_temporal.errors import ConfigurationError
from harness_temporal.state.envelope import HarnessState


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
    try:
        text = sys.stdin.read() if file == '-' else Path(file).read_text('utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f'The state cannot be read from {file}: {error}') from error
    return HarnessState.model_validate_json(text)
