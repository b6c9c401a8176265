"""Invariants 1 and 2: whatever dies and whenever, an undeclared tool runs at most once and a declared one goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.temporal.effects import noted
from tests.temporal.processes import KillPoint, Workers, replay, wait_until_dead
from tests.temporal.runs import Run, start

pytestmark = pytest.mark.temporal


async def run_through_death(
    client: Client, workers: Workers, tool: str, kill_at: KillPoint, *, agent: str = 'scripted', **settings: object
) -> Run:
    """Run one call of a tool on a worker that dies at `kill_at`, and on another one to the end."""
    doomed = workers.start(kill_at=kill_at, **settings)
    run = await start(client, workers, tool, agent=agent, **settings)
    await wait_until_dead(doomed)
    workers.start(kill_at=kill_at, **settings)
    await run.result()
    assert workers.deaths == 1
    return run


@pytest.mark.parametrize(
    ('kill_at', 'effects', 'unresolved'),
    [
        pytest.param('before_started', 1, 0, id='before-started'),
        pytest.param('after_started', 0, 1, id='between-started-and-effect'),
        pytest.param('after_effect', 1, 1, id='after-effect'),
        pytest.param('after_finish', 1, 0, id='after-finish'),
        pytest.param('while_reporting', 1, 0, id='while-reporting'),
    ],
)
async def test_undeclared_tool_runs_at_most_once_when_its_worker_dies(
    client: Client, workers: Workers, tmp_path: Path, kill_at: KillPoint, effects: int, unresolved: int
) -> None:
    run = await run_through_death(client, workers, 'pay', kill_at)

    assert len(noted(tmp_path, 'paid')) == effects
    left = await run.store.list_unresolved_tool_effects(run_id=run.run_id)
    assert [effect.tool_name for effect in left] == ['pay'] * unresolved
    if unresolved:
        assert 'may have taken effect' in run.output
        assert await run.tool_events() == [('tool_call_started', 'pay', None), ('tool_call_failed', 'pay', 'unknown')]
    else:
        assert run.output == 'paid'
        assert await run.tool_events() == [('tool_call_started', 'pay', None), ('tool_call_completed', 'pay', None)]
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert effect.attempts == 1
    await replay(await run.history(), workers.config)


@pytest.mark.parametrize(
    ('kill_at', 'bodies', 'attempts'),
    [
        pytest.param('before_started', 1, 1, id='before-started'),
        pytest.param('after_started', 1, 2, id='between-started-and-effect'),
        pytest.param('after_effect', 2, 2, id='after-effect'),
        pytest.param('after_finish', 1, 1, id='after-finish'),
        pytest.param('while_reporting', 1, 1, id='while-reporting'),
    ],
)
async def test_declared_tool_runs_again_when_its_worker_dies(
    client: Client, workers: Workers, tmp_path: Path, kill_at: KillPoint, bodies: int, attempts: int
) -> None:
    run = await run_through_death(client, workers, 'look', kill_at)

    keys = noted(tmp_path, 'looked')
    assert len(keys) == bodies
    assert len(set(keys)) == 1, 'the idempotency key is the same in every attempt'
    assert run.output == 'looked'
    assert await run.store.list_unresolved_tool_effects(run_id=run.run_id) == []
    [effect] = await run.store.list_tool_effects(run_id=run.run_id)
    assert (effect.status, effect.attempts) == ('completed', attempts)
    starts = [event for event in await run.events() if event.kind == 'tool_call_started']
    assert len(starts) == attempts, 'the log shows every start of the body'
    await replay(await run.history(), workers.config)


@pytest.mark.parametrize(
    ('tool', 'effects', 'unresolved', 'output'),
    [
        pytest.param('pay_remotely', 1, 1, 'may have taken effect', id='undeclared'),
        pytest.param('look_remotely', 2, 0, 'look_remotely by MCP', id='declared'),
    ],
)
async def test_a_tool_of_an_mcp_server_has_the_same_ledger(
    client: Client, workers: Workers, tmp_path: Path, tool: str, effects: int, unresolved: int, output: str
) -> None:
    run = await run_through_death(client, workers, tool, 'after_effect', agent='connected')

    assert len(noted(tmp_path, tool)) == effects
    assert len(await run.store.list_unresolved_tool_effects(run_id=run.run_id)) == unresolved
    assert output in run.output
    await replay(await run.history(), workers.config)


async def test_dedicated_boundaries_keep_the_ledger_in_the_attempt(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    run = await run_through_death(client, workers, 'pay', 'after_effect', boundaries='dedicated')

    assert len(noted(tmp_path, 'paid')) == 1
    assert 'may have taken effect' in run.output
    [effect] = await run.store.list_unresolved_tool_effects(run_id=run.run_id)
    assert effect.tool_name == 'pay'
    await replay(await run.history(), replace(workers.config, boundaries='dedicated'))


async def test_always_runs_an_undeclared_tool_again(client: Client, workers: Workers, tmp_path: Path) -> None:
    run = await run_through_death(client, workers, 'pay', 'after_effect', settings={'tool_recovery': 'always'})
    assert len(noted(tmp_path, 'paid')) == 2
    assert run.output == 'paid'


async def test_never_runs_no_declared_tool_again(client: Client, workers: Workers, tmp_path: Path) -> None:
    run = await run_through_death(client, workers, 'look', 'after_effect', settings={'tool_recovery': 'never'})
    assert len(noted(tmp_path, 'looked')) == 1
    assert 'may have taken effect' in run.output


async def test_suspend_ends_the_run_with_a_request_for_a_decision(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    run = await run_through_death(client, workers, 'pay', 'after_effect', settings={'on_unknown': 'suspend'})
    assert run.ended.status == 'suspended'
    [call] = run.ended.output['calls']
    assert call['tool_name'] == 'pay'
    assert 'harness_temporal.unknown_outcome' in run.ended.output['metadata'][call['tool_call_id']]


async def test_a_nested_run_is_one_run_across_the_attempts_of_its_tool(
    client: Client, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / 'die-after-delegation').touch()
    doomed = workers.start()
    run = await start(client, workers, 'delegate_it')
    await wait_until_dead(doomed)
    workers.start()
    await run.result()

    [nested] = await run.store.list_runs(parent_run_id=run.run_id)
    assert nested.agent_name == 'delegate'
    # The delegate's own effect had completed: the second attempt of the tool met it in the ledger.
    assert len(noted(tmp_path, 'delegated')) == 2
    assert len(noted(tmp_path, 'paid')) == 1
    assert run.output == "delegate said 'paid by the delegate'"
    kinds = [event.kind for event in await run.store.list_events(run_id=nested.run_id)]
    assert kinds.count('run_started') == 2
    assert kinds.count('run_completed') == 2
