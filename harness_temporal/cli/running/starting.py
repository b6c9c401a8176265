"""`run`, and what all commands that start a run share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from harness_temporal.cli.connecting import Place, connected
from harness_temporal.cli.inputs import given_deps, given_state
from harness_temporal.cli.output import Output
from harness_temporal.cli.progress import waiting
from harness_temporal.hosting.namespace import has_attributes
from harness_temporal.hosting.pollers import check_polled
from harness_temporal.temporal import AgentRunOutput, HarnessClient
from harness_temporal.temporal.client import AgentRunHandle


@dataclass(frozen=True)
class Start:
    """What a new run starts with."""

    agent: str
    prompt: str
    deps: str | None
    conversation_id: str | None
    state: str | None
    workflow_id: str | None


async def start_run(place: Place, start: Start, *, wait: bool) -> Output:
    """Start a run of an agent."""
    deps, state = given_deps(start.deps), given_state(start.state)

    async def begin(client: HarnessClient) -> AgentRunHandle:
        return await client.start(
            start.prompt,
            state=state,
            deps=deps,
            conversation_id=start.conversation_id,
            workflow_id=start.workflow_id,
        )

    return await started(place, start.agent, begin, wait=wait)


async def started(
    place: Place, agent: str, begin: Callable[[HarnessClient], Awaitable[AgentRunHandle]], *, wait: bool
) -> Output:
    """Start a run of an agent and, if it is waited for, give its answer.

    Raises:
        ConfigurationError: It is waited for, and no worker would take it up.
    """
    target = await connected(place)
    if wait:
        await check_polled(target.client, target.task_queue)
    client = HarnessClient(
        target.client,
        agent=agent,
        task_queue=target.task_queue,
        search_attributes=await has_attributes(target.client),
    )
    handle = await begin(client)
    begun = {'workflow_id': handle.id, 'workflow_run_id': handle.first_execution_run_id}
    if not wait:
        return Output(begun, f'The run is started as workflow {handle.id}.')
    try:
        with waiting(f'workflow {handle.id}'):
            output = await handle.result()
    except asyncio.CancelledError:
        print(f'The run goes on as workflow {handle.id}.', file=sys.stderr)
        raise
    return Output({**begun, **_data(output)}, _shown(output))


def _data(output: AgentRunOutput) -> dict[str, Any]:
    return {
        'status': output.status,
        'output': output.output,
        'run_id': output.run_id,
        'conversation_id': output.conversation_id,
        'usage': output.usage,
    }


def _shown(output: AgentRunOutput) -> Text:
    if output.status == 'completed':
        return Text(str(output.output))
    if output.status == 'cancelled':
        return Text(f'Run {output.run_id} was cancelled by its agent.')
    return Text(
        f'Run {output.run_id} waits for a decision about its tool calls. `harness-temporal runs show {output.run_id}` '
        f'shows them; answer with `harness-temporal resume {output.run_id} --answers FILE`.'
    )
