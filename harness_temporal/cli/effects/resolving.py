"""`effects resolve`."""

from __future__ import annotations

import getpass

from harness_temporal.cli.effects.views import effect_data
from harness_temporal.cli.inputs import json_option
from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output
from harness_temporal.errors import ConfigurationError
from harness_temporal.step_persistence.resolving import resolve_as_completed, resolve_as_failed


async def resolve_effect(
    store: str | None, run_id: str, call: str, *, completed: str | None, failed: str | None, by: str | None
) -> Output:
    """Write a person's decision into the ledger."""
    if (completed is None) == (failed is None):
        raise ConfigurationError('Give either `--completed JSON` or `--failed REASON`.')
    who = by if by is not None else getpass.getuser()
    async with opened_store(store) as opened:
        await required_run(opened, run_id)
        if completed is not None:
            value = json_option('--completed', completed)
            decided = await resolve_as_completed(opened, run_id=run_id, tool_call_id=call, value=value, by=who)
        else:
            assert failed is not None
            decided = await resolve_as_failed(opened, run_id=run_id, tool_call_id=call, reason=failed, by=who)
    shown = f'{decided.tool_name} ({decided.tool_call_id}) is {decided.status} now, says {who}.'
    return Output({'tool_effect': effect_data(decided)}, shown)
