"""`python -m benchmarks.chain`: one run of 2,000 steps in a chain of workflow runs, whose worker is killed on the way.

Each step calls one tool that appends a line to a file, so that the effects are counted outside of the product.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from harness_temporal import AgentRunInput, AgentRunOutput, HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.media import SqliteMediaStore
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal import HistoryBudget, serve
from harness_temporal.temporal.dev_server import dev_server
from harness_temporal.temporal.payloads import PayloadStorage
from workflows.agent_run import AgentRunWorkflow

TASK_QUEUE, AGENT, WORKFLOW_ID = 'chain', 'walker', 'chain'
HEARTBEAT = timedelta(seconds=2)


@dataclass(frozen=True)
class Chain:
    """What became of the run."""

    steps: int
    workflow_runs: int
    kills: int
    effects: int
    double_effects: int
    completed_in_ledger: int
    unresolved: int
    runs_in_store: int
    largest_history_events: int
    largest_history_bytes: int
    wall_s: float

    @property
    def right(self) -> bool:
        """Whether every step had its effect once, and the store says the same."""
        ends = self.completed_in_ledger + self.unresolved
        return (self.double_effects, self.runs_in_store, ends) == (0, 1, self.steps)


def walker(folder: Path) -> Agent[None, str]:
    """Make the agent: as many steps as the prompt says."""

    def walk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done == steps_of(messages):
            return ModelResponse(parts=[TextPart(f'{done} steps')])
        return ModelResponse(parts=[ToolCallPart('step', {'number': done}, tool_call_id=f'step-{done}')])

    agent = Agent(
        FunctionModel(walk),
        name=AGENT,
        capabilities=[
            StepPersistence[None](store=SqliteStepStore(folder / 'runs.db', max_snapshots_per_run=3), agent_name=AGENT),
            HarnessDurability[None](activity_config={'heartbeat_timeout': HEARTBEAT}),
        ],
    )

    @agent.tool_plain
    async def step(number: int) -> str:
        with (folder / 'effects').open('a') as effects:
            effects.write(f'{number}\n')
        return f'step {number} done'

    return agent


def steps_of(messages: Sequence[ModelMessage]) -> int:
    """Read the number of steps from the prompt."""
    return int(str(messages[0].parts[-1].content))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]


def payloads(folder: Path) -> PayloadStorage:
    """Return where the payloads are kept."""
    return PayloadStorage(SqliteMediaStore(folder / 'payloads.db'))


def work(address: str, folder: Path) -> None:
    """Run a worker until it is killed or told to stop."""

    async def run() -> None:
        plugin = HarnessPlugin(agents=[walker(folder)], payloads=payloads(folder))
        client = await Client.connect(address, plugins=[plugin])
        await serve(Worker(client, task_queue=TASK_QUEUE, workflows=[AgentRunWorkflow], build_id='benchmark'))

    asyncio.run(run())


@contextmanager
def working(address: str, folder: Path) -> Iterator[list[BaseProcess]]:
    """Start one worker; whatever is in the list is killed at the end."""
    workers = [multiprocessing.get_context('spawn').Process(target=work, args=(address, folder))]
    workers[0].start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


async def measure(address: str, folder: Path, *, steps: int, kills: int, budget: int) -> Chain:
    """Run the chain. The worker is killed at even distances."""
    client = await Client.connect(address, plugins=[HarnessPlugin(payloads=payloads(folder))])
    began = time.monotonic()
    with working(address, folder) as workers:
        handle = await client.start_workflow(
            'AgentRun',
            AgentRunInput(
                agent=AGENT,
                prompt=str(steps),
                usage_limits=UsageLimits(request_limit=None),
                history_budget=HistoryBudget(events=budget),
            ),
            id=WORKFLOW_ID,
            task_queue=TASK_QUEUE,
            result_type=AgentRunOutput,
        )
        for kill in range(1, kills + 1):
            while effects_in(folder) < kill * steps // (kills + 1):  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.1)
            workers[-1].kill()
            workers[-1].join()
            workers.append(multiprocessing.get_context('spawn').Process(target=work, args=(address, folder)))
            workers[-1].start()
        ended = await handle.result()
    wall = time.monotonic() - began
    assert ended.output == f'{steps} steps', ended.output
    store = SqliteStepStore(folder / 'runs.db')
    ledger = await store.list_tool_effects(run_id=ended.run_id)
    histories = await sizes(client, handle)
    effects = (folder / 'effects').read_text().split()
    return Chain(
        steps=steps,
        workflow_runs=len(histories),
        kills=kills,
        effects=len(effects),
        double_effects=len(effects) - len(set(effects)),
        completed_in_ledger=sum(effect.status == 'completed' for effect in ledger),
        unresolved=sum(effect.status == 'started' for effect in ledger),
        runs_in_store=len(await store.list_runs()),
        largest_history_events=max(events for events, _ in histories),
        largest_history_bytes=max(size for _, size in histories),
        wall_s=wall,
    )


def effects_in(folder: Path) -> int:
    """Count the effects so far."""
    path = folder / 'effects'
    return path.read_text().count('\n') if path.exists() else 0


async def sizes(client: Client, handle: WorkflowHandle[Any, Any]) -> list[tuple[int, int]]:
    """Return the events and bytes of each workflow run of the chain."""
    found: list[tuple[int, int]] = []
    run_id = handle.first_execution_run_id
    while run_id:
        described = await client.get_workflow_handle(WORKFLOW_ID, run_id=run_id).describe()
        found.append((described.history_length, described.raw_info.history_size_bytes))
        last = [event async for event in client.get_workflow_handle(WORKFLOW_ID, run_id=run_id).fetch_history_events()][
            -1
        ]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def run(*, steps: int, kills: int, budget: int) -> Chain:
    """Run the chain on an embedded server."""
    with TemporaryDirectory() as name, dev_server(ui=False, log=Path(name) / 'server.log') as server:
        return await measure(server.address, Path(name), steps=steps, kills=kills, budget=budget)


def main() -> None:
    """Print what became of the run; the exit code says whether it is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--steps', type=int, default=2_000)
    parser.add_argument('--kills', type=int, default=2)
    parser.add_argument('--budget', type=int, default=4_000, help='events of one workflow run')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    chain = asyncio.run(run(steps=arguments.steps, kills=arguments.kills, budget=arguments.budget))
    if arguments.json:
        print(json.dumps(asdict(chain) | {'right': chain.right}))
    else:
        for name, value in (asdict(chain) | {'right': chain.right}).items():
            print(f'{name:24} {value}')
    raise SystemExit(not chain.right)


if __name__ == '__main__':
    main()
