"""The runs that a run started: in the store, and in Temporal."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.faults.agents import COLLEAGUE
from benchmarks.faults.histories import Went
from benchmarks.faults.runs import persisted_id
from harness_temporal.step_persistence import run_tree
from harness_temporal.stores import StepStore


async def runs_below(store: StepStore, run_id: str) -> dict[str, str | None]:
    """Return the ids of the runs that a run's tools started, with their agents' names."""
    tree = await run_tree(store, run_id=run_id)
    walked = tree.walk() if tree is not None else ()
    return {run.run_id: run.agent_name for depth, run in walked if depth}


def wrong_lineage(went: Went, below: dict[str, str | None]) -> Iterator[str]:
    """Compare the runs below with the workflows that were started for them."""
    registered = {run_id for run_id, agent in below.items() if agent == COLLEAGUE}
    started = {persisted_id(COLLEAGUE, child.first_run_id): child for child in went.children}
    if strange := registered - started.keys():
        yield f'it has the delegates {sorted(strange)}, which Temporal did not start for it'
    ended = {run_id for run_id, child in started.items() if child.is_completed}
    if missing := ended - registered:
        yield f'its delegates {sorted(missing)} are not below it'
