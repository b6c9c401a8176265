"""The commands of `harness-temporal threads`, and `approve` and `deny`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_temporal.cli.executing import execute
from harness_temporal.cli.options import Address, AgentName, Deps, Json, Limit, Namespace, State, TaskQueue, Wait

app = typer.Typer(no_args_is_help=True, help='Talk to threads: workflows that keep a conversation.')

Thread = Annotated[str, typer.Argument(metavar='THREAD', help='The id of a thread.')]
Calls = Annotated[
    list[str] | None,
    typer.Argument(metavar='[CALL]...', help='Ids of tool calls that wait.', show_default=False),
]
All = Annotated[bool, typer.Option('--all', help='All calls that wait for an approval.')]


@app.command('open')
def open_(
    agent: AgentName,
    thread: Annotated[
        str | None, typer.Option('--thread', help='The id, `prefix_suffix`; by default a new one.')
    ] = None,
    name: Annotated[str | None, typer.Option('--name', help='What people call it.')] = None,
    deps: Deps = None,
    state: State = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    as_json: Json = False,
) -> None:
    """Open a thread, and print its id. One that is open stays as it is."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.talking import open_thread

    place = Place(address, namespace, task_queue)
    execute(lambda: open_thread(place, agent, thread, name=name, deps=deps, state=state), as_json=as_json)


@app.command()
def send(
    thread: Thread,
    prompt: Annotated[str, typer.Argument(metavar='PROMPT', help='What to say.')],
    key: Annotated[
        str | None, typer.Option('--key', help='Sent again with the same key, it is the same message.')
    ] = None,
    wait: Wait = True,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Send a message, and print the answer, or what it waits for."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.talking import send_message

    execute(lambda: send_message(Place(address, namespace), thread, prompt, key=key, wait=wait), as_json=as_json)


@app.command()
def show(thread: Thread, address: Address = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Show where a thread is, its last steps, and the calls that it waits for."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.showing import show_thread

    execute(lambda: show_thread(Place(address, namespace), thread), as_json=as_json)


@app.command('list')
def list_(
    everything: Annotated[bool, typer.Option('--all', help='Those that are closed, too.')] = False,
    limit: Limit = 50,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """List threads."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.showing import list_threads

    execute(lambda: list_threads(Place(address, namespace), limit, everything=everything), as_json=as_json)


@app.command()
def cancel(
    thread: Thread,
    turn: Annotated[int | None, typer.Option('--turn', help='Its number; by default the one that is on.')] = None,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Cancel a turn, and wait for its end."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.talking import cancel_turn

    execute(lambda: cancel_turn(Place(address, namespace), thread, turn), as_json=as_json)


@app.command()
def rename(
    thread: Thread,
    name: Annotated[str, typer.Argument(metavar='NAME', help='What people call it.')],
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Give a thread another name."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.talking import rename_thread

    execute(lambda: rename_thread(Place(address, namespace), thread, name), as_json=as_json)


@app.command()
def close(thread: Thread, address: Address = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Have a thread take no more messages. It ends when it has answered those that it took."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.talking import close_thread

    execute(lambda: close_thread(Place(address, namespace), thread), as_json=as_json)


@app.command()
def answer(
    thread: Thread,
    call: Annotated[str, typer.Argument(metavar='CALL', help='The id of a call that waits for a result.')],
    result: Annotated[str, typer.Argument(metavar='JSON', help='What it gave.')],
    wait: Wait = True,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Give the result of a call that something outside made."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.deciding import answer_call

    execute(lambda: answer_call(Place(address, namespace), thread, call, result, wait=wait), as_json=as_json)


def approve(
    thread: Thread,
    calls: Calls = None,
    every: All = False,
    wait: Wait = True,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Approve tool calls that a thread waits for, and print how it went on."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.deciding import approve_calls

    execute(
        lambda: approve_calls(Place(address, namespace), thread, calls or (), every=every, wait=wait), as_json=as_json
    )


def deny(
    thread: Thread,
    calls: Calls = None,
    every: All = False,
    reason: Annotated[str | None, typer.Option('--reason', help='What the model is told.')] = None,
    wait: Wait = True,
    address: Address = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Deny tool calls that a thread waits for, and print how it went on."""
    from harness_temporal.cli.connecting import Place
    from harness_temporal.cli.threads.deciding import deny_calls

    execute(
        lambda: deny_calls(Place(address, namespace), thread, calls or (), every=every, reason=reason, wait=wait),
        as_json=as_json,
    )
