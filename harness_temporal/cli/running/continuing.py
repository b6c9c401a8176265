"""`resume` and `fork`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai.tools import DeferredToolResults

from harness_temporal.cli.connecting import Place
from harness_temporal.cli.inputs import given_answers, given_deps, given_state
from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output
from harness_temporal.cli.running.answering import answers_of
from harness_temporal.cli.running.starting import started
from harness_temporal.errors import ConfigurationError
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.step_persistence.effects import ToolRecovery
from harness_temporal.temporal import HarnessClient
from harness_temporal.temporal.client import AgentRunHandle


@dataclass(frozen=True)
class Continuation:
    """What a run that goes on from another starts with."""

    run_id: str
    prompt: str | None
    agent: str | None
    store: str | None
    tool_recovery: ToolRecovery
    deps: str | None
    workflow_id: str | None


async def resume_run(
    place: Place, continuation: Continuation, *, state: str | None, answers: str | None, wait: bool
) -> Output:
    """Go on from where a run stood."""
    if state == answers == '-':
        raise ConfigurationError('Standard input is the state or the answers, not both: give a file for one of them.')
    deps = given_deps(continuation.deps)
    given, results = given_state(state), given_answers(answers)
    agent = await _agent(continuation)
    resume = await _resume(continuation, results) if results is not None else None

    async def begin(client: HarnessClient) -> AgentRunHandle:
        return await client.resume(
            continuation.run_id,
            prompt=continuation.prompt,
            state=given,
            answers=resume,
            tool_recovery=continuation.tool_recovery,
            workflow_id=continuation.workflow_id,
            deps=deps,
        )

    return await started(place, agent, begin, wait=wait)


async def fork_run(
    place: Place, continuation: Continuation, *, include_interrupted: bool, conversation_id: str | None, wait: bool
) -> Output:
    """Branch off a run."""
    agent, deps = await _agent(continuation), given_deps(continuation.deps)

    async def begin(client: HarnessClient) -> AgentRunHandle:
        return await client.fork(
            continuation.run_id,
            prompt=continuation.prompt,
            include_interrupted=include_interrupted,
            tool_recovery=continuation.tool_recovery,
            workflow_id=continuation.workflow_id,
            deps=deps,
            conversation_id=conversation_id,
        )

    return await started(place, agent, begin, wait=wait)


async def _resume(continuation: Continuation, results: DeferredToolResults) -> DeferredToolResume:
    async with opened_store(continuation.store) as store:
        return await answers_of(store, await required_run(store, continuation.run_id), results)


async def _agent(continuation: Continuation) -> str:
    if continuation.agent is not None:
        return continuation.agent
    async with opened_store(continuation.store) as store:
        run = await required_run(store, continuation.run_id)
    if run.agent_name is None:
        raise ConfigurationError(f'Run {continuation.run_id!r} has no agent in its record: name it with `--agent`.')
    return run.agent_name
