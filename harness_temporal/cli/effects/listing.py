"""`effects list`."""

from __future__ import annotations

from harness_temporal.cli.effects.views import effect_data, effects_table
from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output
from harness_temporal.records import ToolEffectRecord


async def list_effects(
    store: str | None, run_id: str | None, conversation_id: str | None, agent: str | None, limit: int
) -> Output:
    """List the unresolved effects of the newest runs."""
    async with opened_store(store) as opened:
        if run_id is None:
            runs = await opened.list_runs(conversation_id=conversation_id, limit=limit)
        else:
            runs = [await required_run(opened, run_id)]
        found: list[ToolEffectRecord] = []
        for run in reversed(runs):
            if agent is None or run.agent_name == agent:
                found += await opened.list_unresolved_tool_effects(run_id=run.run_id)
    shown = effects_table(found, with_run=True) if found else 'No outcome is unknown.'
    return Output({'tool_effects': [effect_data(effect) for effect in found]}, shown)
