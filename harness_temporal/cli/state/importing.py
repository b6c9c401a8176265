"""`state import`."""

from __future__ import annotations

from harness_temporal.cli.inputs import read_state
from harness_temporal.cli.opening import opened_store
from harness_temporal.cli.output import Output
from harness_temporal.state.storing import import_state


async def import_file(store: str | None, file: str, *, agent: str | None, run_id: str | None) -> Output:
    """Keep a state's messages in the store."""
    state = read_state(file)
    async with opened_store(store) as opened:
        run = await import_state(opened, state, agent_name=agent, run_id=run_id)
    capabilities = sorted(state.agent_context_state.entries)
    shown = f'Thread {state.thread_id} is kept as run {run.run_id}.'
    if capabilities:
        shown += f' What {", ".join(capabilities)} keep is in the file only: resume it with `--state {file}`.'
    return Output(
        {
            'run_id': run.run_id,
            'thread_id': state.thread_id,
            'messages': len(state.encoded_history),
            'capabilities': capabilities,
        },
        shown,
    )
