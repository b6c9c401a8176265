"""Every cell of the tool recovery table (docs/tool-recovery.md) in workflows, from what a store holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import ExternalToolset
from temporalio.client import Client
from temporalio.worker import Worker

from harness_temporal import AgentRunInput, HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.state import HarnessState
from harness_temporal.state.deferred_documents import resume_document
from harness_temporal.step_persistence import InMemoryStepStore, ToolEffectRecord
from harness_temporal.step_persistence.outcomes import ended_with_result, load_result
from harness_temporal.temporal import SnapshotReference
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.testing.samples import a_run, a_snapshot
from tests.state.decision_table import POLICIES, ROWS, Row, restored
from tests.state.support import Bench, external_tools, outcomes, user
from workflows.agent_run import AgentRunWorkflow

pytestmark = pytest.mark.temporal


def named_external_tools() -> ExternalToolset[Any]:
    return ExternalToolset(external_tools().tool_defs, id='outside')


async def keep(store: InMemoryStepStore, row: Row) -> ToolCallPart:
    """Write what a run left that had stopped with the row's call open."""
    history = [user(), *restored(row)]
    call = history[1].parts[0]
    assert isinstance(call, ToolCallPart)
    await store.commit([a_run(row.id), a_snapshot(history, row.id, state='interrupted')])
    if row.recorded is not None:
        ended = ended_with_result(load_result(row.recorded))
        effect = ToolEffectRecord(
            run_id=row.id,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            call_key=row.id,
            step_index=1,
            status='completed' if ended.outcome == 'returned' else 'failed',
            outcome=ended.outcome,
            value=row.recorded,
        )
        await store.record_tool_effect(effect)
    return call


async def test_every_cell(temporal_server: DevServer, task_queue: str) -> None:
    store = InMemoryStepStore()
    bench = Bench(
        name='bench',
        toolsets=[named_external_tools()],
        capabilities=[StepPersistence[Any](store=store, agent_name='bench'), HarnessDurability[Any]()],
    )
    client = await Client.connect(temporal_server.address, plugins=[HarnessPlugin(agents=[bench.agent])])
    calls = {row.id: await keep(store, row) for row in ROWS}

    async def cell(row: Row, policy: Any) -> tuple[str, str, str]:
        ended = await client.execute_workflow(
            AgentRunWorkflow.run,
            AgentRunInput(
                agent='bench',
                continue_from=SnapshotReference(run_id=row.id, include_interrupted=True),
                tool_recovery=policy,
                answers=resume_document(row.resume(calls[row.id])) if row.resume is not None else None,
            ),
            id=f'{task_queue}-{row.id}-{policy}',
            task_queue=task_queue,
        )
        assert ended.state is not None
        ran = [effect.status for effect in await store.list_tool_effects(run_id=ended.run_id)]
        return row.id, policy, told(row, ended.status, ended.output, await ended.state.load(store), ran)

    async with Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow], build_id='tests'):
        cells = await asyncio.gather(*(cell(row, policy) for row in ROWS for policy in POLICIES))
    assert cells == [(row.id, policy, getattr(row, policy)) for row in ROWS for policy in POLICIES]


def told(row: Row, status: str, output: Any, state: HarnessState, ran: list[str]) -> str:
    """Say what became of the call in the words of the table; `ran` is what the run's own ledger says."""
    if status == 'suspended':
        [kind] = [kind for kind in ('approvals', 'calls') if output[kind]]
        assert [call['tool_name'] for call in output[kind]] == [row.tool]
        assert 'completed' not in ran
        return {'approvals': 'approval', 'calls': 'external'}[kind]
    found = outcomes(state)
    assert (status, output, list(found)) == ('completed', 'done', [row.tool])
    answer = found[row.tool]
    if ran == ['completed']:
        assert answer.startswith('success: ')
        return 'ran'
    assert ran == []
    return 'retried' if answer.startswith('retried: ') and not row.after else answer
