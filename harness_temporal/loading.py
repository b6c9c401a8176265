"""Load what a setting or an argument names as `module` or `module:attribute`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TypeVar

from harness_temporal.errors import ConfigurationError

T = TypeVar('T')


def load_module(name: str) -> ModuleType:
    """Import a module, which may be in the current folder.

    Raises:
        ConfigurationError: There is none of that name, or its own code raised.
    """
    # As with `python -m`, also where a console script has its own folder there instead.
    sys.path.insert(0, '')
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(f'{name!r} cannot be loaded: {error}.') from error
    except Exception as error:
        told = f'{type(error).__name__}: {error}{_place(error)}'
        raise ConfigurationError(f'{name!r} cannot be loaded: {told}') from error
    finally:
        sys.path.remove('')


def _place(error: Exception) -> str:
    """Say where in the user's own code it was raised, if anywhere."""
    others = (sys.prefix, sys.base_prefix, f'{Path(__file__).parent}{os.sep}', '<')
    own = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f' ({own[-1].filename}:{own[-1].lineno})' if own else ''


def load_attribute(path: str, kind: type[T]) -> T:
    """Import a module, which may be in the current folder, and return one of its attributes.

    Raises:
        ConfigurationError: `path` is not `module:attribute`, or does not lead to one of that kind.
    """
    module, _, attribute = path.partition(':')
    if not module or not attribute:
        raise ConfigurationError(f'{path!r} does not name an `{kind.__name__}` as `module:attribute`.')
    try:
        found: object = getattr(load_module(module), attribute)
    except AttributeError as error:
        raise ConfigurationError(f'{path!r} cannot be loaded: {error}.') from error
    if not isinstance(found, kind):
        raise ConfigurationError(f'{path!r} is a {type(found).__name__}, not a `{kind.__name__}`.')
    return found
