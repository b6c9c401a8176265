"""Options that several commands have. Nothing here imports more than typer: `--help` is quick."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

Json: TypeAlias = Annotated[bool, typer.Option('--json', help='Print JSON on standard output, and nothing else.')]

Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        '--store',
        help='file:FOLDER, sqlite:FILE, postgresql://… or mongodb://HOST/DATABASE; else HARNESS_STORE_URL, `url` in '
        '[store] of harness.toml, or the store of `harness-temporal dev` in this folder.',
        show_default=False,
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option('--address', help="Temporal's host and port; else TEMPORAL_ADDRESS, or [temporal].", metavar='H:P'),
]
Namespace: TypeAlias = Annotated[
    str | None, typer.Option('--namespace', help='Else TEMPORAL_NAMESPACE, or `namespace` in [temporal].')
]
TaskQueue: TypeAlias = Annotated[
    str | None, typer.Option('--task-queue', help="The workers'; else HARNESS_TASK_QUEUE, or [worker].")
]
RunId: TypeAlias = Annotated[str, typer.Argument(metavar='RUN', help='The id of a run.')]
AgentName: TypeAlias = Annotated[str, typer.Argument(metavar='AGENT', help='The name of an agent of the workers.')]
Agent: TypeAlias = Annotated[str | None, typer.Option('--agent', help='The name of an agent.')]
Limit: TypeAlias = Annotated[int, typer.Option('--limit', min=1, help='How many, the newest first.')]
Prompt: TypeAlias = Annotated[str | None, typer.Option('--prompt', help='New input.')]
Wait: TypeAlias = Annotated[bool, typer.Option('--wait/--no-wait', help='Wait for the answer.')]
Deps: TypeAlias = Annotated[str | None, typer.Option('--deps', help="The agent's dependencies, as JSON.")]
Conversation: TypeAlias = Annotated[str | None, typer.Option('--conversation', help='The id of a conversation.')]
WorkflowId: TypeAlias = Annotated[str | None, typer.Option('--workflow-id', help="The new workflow's id.")]
State: TypeAlias = Annotated[
    str | None, typer.Option('--state', help='A file with the state of a thread, or `-`.', metavar='FILE')
]
Answers: TypeAlias = Annotated[
    str | None,
    typer.Option('--answers', help='A file with answers to the calls that it waits for, or `-`.', metavar='FILE'),
]
Recovery: TypeAlias = Annotated[
    Literal['never', 'declared', 'always'],
    typer.Option('--tool-recovery', help='Which tool calls without a recorded outcome run again.'),
]
