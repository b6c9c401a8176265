"""The commands that start runs."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import (
    Address,
    Agent,
    AgentName,
    Answers,
    Conversation,
    Deps,
    Json,
    Namespace,
    Prompt,
    Recovery,
    RunId,
    State,
    Store,
    TaskQueue,
    Wait,
    WorkflowId,
)


def run(
    agent: AgentName,
    prompt: Annotated[str, typer.Argument(metavar='PROMPT', help='What to say to it.')],
    wait: Wait = True,
    deps: Deps = None,
    conversation: Conversation = None,
    state: State = None,
    workflow_id: WorkflowId = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    as_json: Json = False,
) -> None:
    """Run an agent on a worker, and print its answer."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.running.starting import Start, start_run

    start = Start(agent, prompt, deps, conversation, state, workflow_id)
    execute(lambda: start_run(Place(address, namespace, task_queue), start, wait=wait), as_json=as_json)


def resume(
    run: RunId,
    prompt: Prompt = None,
    agent: Agent = None,
    store: Store = None,
    answers: Answers = None,
    tool_recovery: Recovery = 'declared',
    wait: Wait = True,
    deps: Deps = None,
    state: State = None,
    workflow_id: WorkflowId = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    as_json: Json = False,
) -> None:
    """Go on from where a run stood when it failed, was terminated or suspended itself.

    Its agent is looked up in the store unless --agent names it.
    """
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.running.continuing import Continuation, resume_run

    continuation = Continuation(run, prompt, agent, store, tool_recovery, deps, workflow_id)
    place = Place(address, namespace, task_queue)
    execute(lambda: resume_run(place, continuation, state=state, answers=answers, wait=wait), as_json=as_json)


def fork(
    run: RunId,
    prompt: Prompt = None,
    agent: Agent = None,
    store: Store = None,
    include_interrupted: Annotated[
        bool, typer.Option('--include-interrupted', help='Branch off where it stood, also with open tool calls.')
    ] = False,
    tool_recovery: Recovery = 'declared',
    wait: Wait = True,
    deps: Deps = None,
    conversation: Conversation = None,
    workflow_id: WorkflowId = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    as_json: Json = False,
) -> None:
    """Branch off a run's newest complete snapshot, into a thread and conversation of its own.

    Its agent is looked up in the store unless --agent names it.
    """
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.running.continuing import Continuation, fork_run

    continuation = Continuation(run, prompt, agent, store, tool_recovery, deps, workflow_id)
    place = Place(address, namespace, task_queue)
    execute(
        lambda: fork_run(
            place, continuation, include_interrupted=include_interrupted, conversation_id=conversation, wait=wait
        ),
        as_json=as_json,
    )
