"""Load what a setting or an argument names as `module:attribute`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TypeVar

from harness_temporal.errors import ConfigurationError

T = TypeVar('T')


def load_attribute(path: str, kind: type[T]) -> T:
    """Import a module, which may be in the current folder, and return one of its attributes.

    Raises:
        ConfigurationError: `path` is not `module:attribute`, or does not lead to one of that kind.
    """
    module, _, attribute = path.partition(':')
    if not module or not attribute:
        raise ConfigurationError(f'{path!r} does not name an `{kind.__name__}` as `module:attribute`.')
    # As with `python -m`, also where a console script has its own folder there instead.
    sys.path.insert(0, '')
    try:
        found: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f'{path!r} cannot be loaded: {error}.') from error
    finally:
        sys.path.remove('')
    if not isinstance(found, kind):
        raise ConfigurationError(f'{path!r} is a {type(found).__name__}, not a `{kind.__name__}`.')
    return found
