"""`python -m benchmarks.threads`: many threads at once, and workers that are replaced while these wait for approvals.

Each thread sends its messages one after another. Some ask for an approval, which is given or denied after a random
time. In the middle, a worker of a new build takes over and the old one drains. At the end every message has one answer,
and every approval that was given has one effect. The workers' memory is read from the system after each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from harness_temporal import HarnessDurability, HarnessPlugin, StepPersistence
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal import HarnessThreads, HistoryBudget, ThreadOptions, serve
from harness_temporal.temporal.dev_server import dev_server
from workflows.thread import ThreadWorkflow

DEPLOYMENT = 'threads'
FLAT = 1.3
"""How much a worker may grow from its second round to its last. In the first it loads what it needs."""


@dataclass(frozen=True)
class Place:
    """What a worker needs to know."""

    address: str
    task_queue: str
    folder: str
    build_id: str


@dataclass(frozen=True)
class Measured:
    """What came of it."""

    threads: int
    turns: int
    lost: int
    answered_twice: int
    approved: int
    effects: int
    wall_s: float
    median_turn_s: float
    slowest_turn_s: float
    worker_mb: list[float]
    """Of the worker that ran, after each round."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool that the message names, then say the message."""
    prompt = next(
        part.content
        for message in reversed(messages)
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    )
    tool, _, text = str(prompt).partition(' ')
    if tool != 'say' and any(isinstance(part, UserPromptPart) for part in messages[-1].parts):
        return ModelResponse(parts=[ToolCallPart(tool, {'text': text}, tool_call_id=f'call-{text}')])
    return ModelResponse(parts=[TextPart(text)])


def make_agent(folder: Path) -> Agent[None, str | DeferredToolRequests]:
    """Make the agent of a worker."""
    agent = Agent(
        FunctionModel(answer),
        name='talker',
        output_type=[str, DeferredToolRequests],
        capabilities=[
            StepPersistence[None](store=SqliteStepStore(folder / 'runs.db'), agent_name='talker'),
            HarnessDurability[None](),
        ],
    )

    @agent.tool
    async def pay(ctx: RunContext[None], text: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        with (folder / 'paid').open('a') as effects:
            effects.write(f'{text}\n')
        return 'paid'

    return agent


async def work(place: Place) -> None:
    """Be a worker."""
    agent = make_agent(Path(place.folder))
    client = await Client.connect(place.address, plugins=[HarnessPlugin(agents=[agent])])
    worker = Worker(
        client,
        task_queue=place.task_queue,
        workflows=[ThreadWorkflow],
        deployment_config=WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(DEPLOYMENT, place.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
        ),
        max_cached_workflows=600,
        # Each of them needs the interpreter: a hundred at once all take longer than the server waits.
        max_concurrent_workflow_tasks=8,
    )
    await serve(worker)


async def start_worker(client: Client, place: Place) -> subprocess.Popen[bytes]:
    """Start a worker process, and make its build the current one."""
    arguments = [sys.executable, '-m', 'benchmarks.threads', '--worker', json.dumps(asdict(place))]
    process = await asyncio.to_thread(subprocess.Popen, arguments)
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=DEPLOYMENT, build_id=place.build_id, identity='benchmark'
    )
    while process.poll() is None:
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            # The server hears of a build when its worker asks for work.
            await asyncio.sleep(0.2)
        else:
            return process
    raise RuntimeError(f'the worker ended with {process.returncode}')


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    """Return how much memory a process has."""
    pages = int(Path(f'/proc/{process.pid}/statm').read_text().split()[1])
    return round(pages * os.sysconf('SC_PAGE_SIZE') / 2**20, 1)


async def talk(
    threads: HarnessThreads, thread_id: str, rounds: range, random: Random, took: list[float], approved: list[str]
) -> list[tuple[str, str]]:
    """Send a thread its messages, and return each with its answer."""
    thread = await threads.open(thread_id)
    said: list[tuple[str, str]] = []
    for number in rounds:
        text = f'{thread_id}-{number}'
        began = time.monotonic()
        reply = await thread.send(f'{random.choice(["say", "pay"])} {text}', key=text)
        took.append(time.monotonic() - began)
        if reply.pending:
            await asyncio.sleep(random.random() * 2)
            [call] = reply.pending
            given = random.random() < 0.5
            approved += [text] * given
            reply = await thread.resolve(DeferredToolResults(approvals={call.tool_call_id: given}), wait='answered')
        said.append((text, str(reply.output)))
    return said


async def run(count: int, rounds: int) -> Measured:
    """Run it all."""
    random, took, approved = Random(1), list[float](), list[str]()
    with TemporaryDirectory() as folder, dev_server(ui=False, log=Path(folder) / 'server.log') as server:
        client = await Client.connect(server.address, plugins=[HarnessPlugin()])
        place = Place(server.address, f'threads-{uuid.uuid4().hex}', folder, 'build-1')
        worker = await start_worker(client, place)
        options = ThreadOptions(history_budget=HistoryBudget(events=200))
        threads = HarnessThreads(client, agent='talker', task_queue=place.task_queue, options=options)
        ids = [f'thread_{uuid.uuid4().hex}' for _ in range(count)]
        said: list[tuple[str, str]] = []
        memory: list[float] = []
        began = time.monotonic()
        try:
            for number in range(rounds):
                this_round = range(number, number + 1)
                talks = [
                    asyncio.create_task(talk(threads, thread_id, this_round, random, took, approved))
                    for thread_id in ids
                ]
                if number == rounds // 2:
                    await asyncio.sleep(1)
                    old, worker = worker, await start_worker(client, Place(**{**asdict(place), 'build_id': 'build-2'}))
                    old.send_signal(signal.SIGTERM)
                    await asyncio.to_thread(old.wait, 60)
                said += [pair for item in await asyncio.gather(*talks) for pair in item]
                memory.append(resident_mb(worker))
        finally:
            worker.kill()
            worker.wait()
        effects = Counter((Path(folder) / 'paid').read_text().splitlines())
    took.sort()
    return Measured(
        threads=count,
        turns=len(said),
        lost=sum(text != output for text, output in said),
        answered_twice=sum(number - 1 for number in effects.values()),
        approved=len(approved),
        effects=len(effects),
        wall_s=round(time.monotonic() - began, 1),
        median_turn_s=round(took[len(took) // 2], 2),
        slowest_turn_s=round(took[-1], 2),
        worker_mb=memory,
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--threads', type=int, default=500)
    parser.add_argument('--rounds', type=int, default=6)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        return asyncio.run(work(Place(**json.loads(arguments.worker))))
    measured = asyncio.run(run(arguments.threads, arguments.rounds))
    if arguments.json:
        print(json.dumps(asdict(measured)))
        return
    met = measured.lost == measured.answered_twice == 0 and measured.approved == measured.effects
    print(
        f'{measured.threads} threads, {measured.turns} turns in {measured.wall_s} s: {measured.lost} lost, '
        f'{measured.effects} effects of {measured.approved} approvals, {measured.answered_twice} done twice '
        f'({"met" if met else "MISSED"})'
    )
    print(f'to an answer or a question: median {measured.median_turn_s} s, at most {measured.slowest_turn_s} s')
    half = arguments.rounds // 2
    for build, sizes in (('first', measured.worker_mb[:half]), ('second', measured.worker_mb[half:])):
        flat = 'flat' if len(sizes) < 2 or sizes[-1] <= FLAT * sizes[1] else 'GROWS'
        print(f'worker of the {build} build after each round: {sizes} MB ({flat})')


if __name__ == '__main__':
    main()
