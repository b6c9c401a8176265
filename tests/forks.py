"""Processes that are forked from one that has everything imported, so that a new one starts in milliseconds."""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context('forkserver')
_imported: list[str] = []


def import_before_forks(module: str) -> None:
    """Have a module imported where processes are forked from. Only what is said before the first fork counts.

    All modules of tests are imported before that, and `set_forkserver_preload` alone keeps no more than the last one's.
    """
    _imported.append(module)
    FORKS.set_forkserver_preload([*_imported])
