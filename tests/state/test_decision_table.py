"""Every cell of the decision table, run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from tests.state.decision_table import POLICIES, ROWS, Row, restored
from tests.state.support import Bench, asked, outcomes, thread, user


@pytest.mark.parametrize('policy', POLICIES)
@pytest.mark.parametrize('row', ROWS, ids=lambda row: row.id)
async def test_cell(row: Row, policy: str) -> None:
    bench = Bench('done')
    messages = restored(row)
    made = messages[0].parts[0]
    assert isinstance(made, ToolCallPart)
    arguments: dict[str, Any] = {}
    if row.resume is not None:
        arguments['deferred_resume'] = row.resume(made)
    if row.recorded is not None:
        arguments['recorded_outcomes'] = {made.tool_call_id: row.recorded}
    state = thread(user(), *messages)
    result = await bench.run(previous_state=state, tool_recovery=policy, **arguments)
    expected = getattr(row, policy)
    if expected in ('approval', 'external'):
        category = 'approvals' if expected == 'approval' else 'calls'
        assert asked(result)[category] == [row.tool]
        assert bench.model.requests == 0
        assert outcomes(result.state) == {}
        # Only a tool that asks while it runs has to be run to ask.
        assert set(bench.ran) <= {'safe_ask?', 'defers'} - ({row.tool} if row.recorded else set())
        if row.recorded:
            assert result.deferred.metadata
        return
    assert (result.status, bench.model.requests) == ('completed', 1)
    found = outcomes(result.state)
    assert list(found) == [row.tool]
    if expected == 'ran':
        assert bench.ran == [row.tool]
        assert found[row.tool].startswith('success')
    else:
        assert bench.ran == []
        assert found[row.tool] == expected or (expected == 'retried' and found[row.tool].startswith('retried: '))
