"""`state export`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output
from harness_temporal.errors import ConfigurationError
from harness_temporal.state.storing import export_state


@dataclass(frozen=True)
class Source:
    """Whose state is wanted, and from where."""

    run_id: str
    store: str | None
    thread_id: str | None
    from_workflow: bool
    address: str | None
    namespace: str | None


async def export_run(source: Source, *, file: str | None) -> Output:
    """Give the state of a run, or write it to a file."""
    async with opened_store(source.store) as store:
        run = await required_run(store, source.run_id)
        if source.from_workflow:
            # Temporal's client takes a while to import, and most states come from the store.
            from harness_temporal.cli.connecting import Place
            from harness_temporal.cli.state.results import state_of_result

            if source.thread_id is not None:
                raise ConfigurationError('`--thread-id` is for a state from the store: a workflow gives its own.')
            state = await state_of_result(Place(source.address, source.namespace), run, store)
        else:
            state = await export_state(store, run_id=source.run_id, thread_id=source.thread_id)
    document = state.model_dump_json()
    if file is None:
        return Output({'state': state.model_dump(mode='json')}, Text(document))
    await asyncio.to_thread(Path(file).write_text, document, 'utf-8')
    shown = f'Thread {state.thread_id}, {len(state.encoded_history)} messages, is in {file}.'
    return Output({'file': file, 'thread_id': state.thread_id, 'messages': len(state.encoded_history)}, shown)
