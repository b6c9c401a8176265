"""A run and the runs that it started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness_temporal.records import RunRecord
from harness_temporal.stores.protocol import StepStore


@dataclass(frozen=True)
class RunTree:
    """A run, and the runs that its tools started, each with its own."""

    run: RunRecord
    children: tuple[RunTree, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, RunRecord]]:
        """Yield each run with its depth, a parent before its children."""
        yield depth, self.run
        for child in self.children:
            yield from child.walk(depth + 1)


async def run_tree(store: StepStore, *, run_id: str) -> RunTree | None:
    """Return a run with all that came of it, in the order in which they started; `None` if there is no such run."""
    run = await store.get_run(run_id=run_id)
    return await tree_of(store, run) if run is not None else None


async def tree_of(store: StepStore, run: RunRecord, *, above: frozenset[str] = frozenset()) -> RunTree:
    """Return a run whose record is at hand with all that came of it, but for the runs that it is below."""
    above |= {run.run_id}
    # Anybody may have given a parent's id: a circle is cut.
    children = [child for child in await store.list_runs(parent_run_id=run.run_id) if child.run_id not in above]
    return RunTree(run, tuple([await tree_of(store, child, above=above) for child in children]))
