"""Who may use which files of a store when, and what a process that died left to finish.

Whoever uses a run holds the lock on the run's journal. A batch that registers runs, or that several runs share, goes
through the journal of the store, whose lock comes first, and so do those who list the runs.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness_temporal.stores.file.folders import STORE, Folder, FolderRemovedError
from harness_temporal.stores.file.journal import Change, Journal, apply, decode

_JOURNAL = '.journal'


@dataclass(frozen=True)
class Held:
    """Runs whose locks are held."""

    root: Folder
    runs: dict[str, Folder]
    """By the names of their folders."""
    journals: list[Journal]
    """Those of the runs."""
    store_journal: Journal | None

    def commit(self, changes: list[Change]) -> None:
        """Make all of the changes, or none of them."""
        # A line that is cut short is no line, so one line needs no journal.
        if len(changes) == 1 and changes[0].offset is not None and (changes[0].data or b'').count(b'\n') == 1:
            apply(self.root, changes)
        elif changes and self.store_journal is None:
            (journal,) = self.journals
            journal.write(changes)
            apply(self.root, changes)
            journal.clear()
        elif changes and self.store_journal is not None:
            # No journal of a run may come back and undo this batch, nor this batch what comes after it.
            for journal in self.journals:
                journal.flush()
            self.store_journal.write(changes)
            apply(self.root, changes)
            self.store_journal.clear()
            self.store_journal.flush()


@contextmanager
def hold_all(path: Path) -> Generator[Folder | None]:
    """Keep runs from being registered; `None` if there is no store at `path`."""
    root = Folder.at(STORE, path)
    if root is None:
        yield None
        return
    with root, ExitStack() as stack:
        _enter_store(stack, root)
        yield root


@contextmanager
def hold(path: Path, names: Collection[str], *, shared: bool = False, create: bool = False) -> Generator[Held | None]:
    """Hold the runs whose folders have these names; unless they may be made, `None` if one of them is not there.

    Args:
        path: The store's folder.
        names: The names of the runs' folders.
        shared: Whether the batch goes through the store's journal. Needed for more than one run.
        create: Whether to make what is not there.
    """
    root = Folder.made_at(STORE, path) if create else Folder.at(STORE, path)
    if root is None:
        yield None
        return
    with root, ExitStack() as stack:
        journal = _enter_store(stack, root) if shared else None
        while True:
            with ExitStack() as locks:
                try:
                    runs = _enter_runs(locks, root, names, create=create)
                except FolderRemovedError:
                    # What is there now, if anything, is another run of that name.
                    continue
                if runs is None:
                    yield None
                    return
                if journal is not None or not _is_unfinished(root, names):
                    folders, journals = runs
                    yield Held(root, folders, journals, journal)
                    return
            # The store's lock comes before those of runs, so they had to be let go.
            with ExitStack() as recovery:
                _enter_store(recovery, root)


def _enter_runs(
    stack: ExitStack, root: Folder, names: Collection[str], *, create: bool
) -> tuple[dict[str, Folder], list[Journal]] | None:
    folders: dict[str, Folder] = {}
    journals: list[Journal] = []
    for name in sorted(names):
        run = root.make(name) if create else root.within(name)
        if run is None:
            return None
        folders[name] = stack.enter_context(run)
        journals.append(_enter_run(stack, root, run))
    return folders, journals


def _enter_run(stack: ExitStack, root: Folder, run: Folder) -> Journal:
    journal = Journal(run, _JOURNAL, stack.enter_context(run.locked(_JOURNAL)))
    if not run.is_within(root):
        raise FolderRemovedError(run.store, run.path)
    if changes := journal.pending():
        apply(root, changes)
        journal.clear()
    return journal


def _enter_store(stack: ExitStack, root: Folder) -> Journal:
    journal = Journal(root, _JOURNAL, stack.enter_context(root.locked(_JOURNAL)))
    if changes := journal.pending():
        with ExitStack() as locks:
            for name in sorted({change.run for change in changes if change.run}):
                _enter_run(locks, root, locks.enter_context(root.make(name)))
            apply(root, changes)
            journal.clear()
            journal.flush()
    return journal


def _is_unfinished(root: Folder, names: Collection[str]) -> bool:
    """Whether the store's journal has a batch for runs whose locks are held: who wrote it did not live to finish it."""
    content = root.read(_JOURNAL)
    return bool(content) and any(change.run in names for change in decode(content))
