"""What a command says of an error that its user can do something about."""

from __future__ import annotations

import sys
from typing import Final

from harness_temporal.errors import (
    HarnessError,
    MissingKeyError,
    StoreAccessError,
    StoreCorruptionError,
    StoreUnavailableError,
)

_HINTS: Final = (
    (
        MissingKeyError,
        'On the command line: HARNESS_STORE_KEY_RING, or `key_ring` in [store] of harness.toml, names them.',
    ),
    (StoreUnavailableError, 'Check its address, and that it runs.'),
    (StoreAccessError, 'Check user, password and rights.'),
    (StoreCorruptionError, 'Check that it is the store that you mean; `harness-temporal store check` reads all of it.'),
)


def explained(error: Exception) -> str | None:
    """Return what to tell, or `None` for an error that is nobody's mistake but ours."""
    if isinstance(error, HarnessError):
        hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)
        return f'{error} {hint}' if hint is not None else str(error)
    if isinstance(error, OSError):
        return f'{error.strerror or error}: {error.filename}' if error.filename else str(error)
    # Without it in memory, it raised nothing.
    if 'temporalio' in sys.modules:
        from harness_temporal.cli.temporal_failures import explained_by_temporal

        return explained_by_temporal(error)
    return None
