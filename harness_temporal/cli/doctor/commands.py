"""The command `harness-temporal doctor`."""

from __future__ import annotations

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Address, Json, Namespace, Store, TaskQueue


def doctor(
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Try all that is configured, and say what is wrong and how to mend it. Status 1 means that something is."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.doctor.examining import examine

    execute(lambda: examine(Place(address, namespace, task_queue), store), as_json=as_json)
